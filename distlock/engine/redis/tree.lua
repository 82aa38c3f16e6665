-- The tree of nodes that the locks need, kept by Redis: a small ZooKeeper.
--
-- Every key begins with the prefix, KEYS[1], which is also its hash tag, so that one server of a
-- cluster has all of them. Below it:
--
--   zxid          the number of the last transaction
--   run           the id of the server's process that the last session began on
--   grace         until when no contender is made there
--   sessions      a sorted set of tokens "<id>:<password>" by their deadlines
--   last          the number of each session's last transaction, by its id
--   empty         a sorted set of containers without children by when they became so
--   n:<path>      a node, packed
--   c:<path>      the names of its children
--   e:<id>        the paths of a session's ephemeral nodes
--   d:<path>      the sessions that watch the node, and l:<path> those that watch its list
--   w:<id>        the watch keys of a session
--   events:<id>   the channel on which a session hears of changes
--
-- Times are microseconds of the server's clock. A transaction first changes copies of the nodes, and
-- then writes all of them, so an error leaves nothing half done.
--
-- Source: ZooKeeper's PrepRequestProcessor, DataTree and ContainerManager.

local MAX_INT = 2147483647
-- The sessions or containers that one call removes.
local MANY = 100

-- Whether this process of the server has had sessions of a prefix, which its successor cannot know;
-- and a copy of the grace key.
local known, grace = {}, {}

local EPHEMERAL, SEQUENTIAL, CONTAINER = 1, 2, 4

-- The fields of a packed node.
local DATA, CZXID, MZXID, PZXID, CTIME, MTIME, VERSION, OWNER, MADE, CHILDREN, IS_CONTAINER =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Integers, as "%d" of this Lua ends at 2^31.
local function whole(number)
  return string.format('%.0f', number)
end

local function parent_of(path)
  local above = string.match(path, '^(.*)/[^/]*$')
  return above == '' and '/' or above
end

local function name_of(path)
  return string.match(path, '[^/]*$')
end

local function id_of(token)
  return string.match(token, '^%d+')
end

-- --- transactions ------------------------------------------------------------------------------

local Transaction = {}
Transaction.__index = Transaction

local function transaction(prefix, now)
  return setmetatable({
    prefix = prefix, now = now, nodes = {}, order = {}, writes = {}, fired = {},
  }, Transaction)
end

function Transaction:number()
  if not self.zxid then
    local last = tonumber(redis.call('GET', self.prefix .. 'zxid') or 0)
    -- Not below the clock, so that numbers rise also where the data was lost.
    self.zxid = math.max(last + 1, self.now)
  end
  return self.zxid
end

-- Return the node as this transaction has left it, or nil.
function Transaction:find(path)
  local node = self.nodes[path]
  if node == nil then
    local packed = redis.call('GET', self.prefix .. 'n:' .. path)
    node = packed and cmsgpack.unpack(packed) or path == '/' and self:new('', '') or false
    self.nodes[path] = node
  end
  return node or nil
end

function Transaction:new(data, owner)
  local zxid, ms = self:number(), math.floor(self.now / 1000)
  return {data, zxid, zxid, zxid, ms, ms, 0, owner, 0, 0, false}
end

function Transaction:put(path, node)
  self.nodes[path] = node
  self.order[#self.order + 1] = path
end

function Transaction:write(...)
  self.writes[#self.writes + 1] = {...}
end

function Transaction:fire(kind, path)
  self.fired[#self.fired + 1] = {kind, path}
end

function Transaction:commit()
  local p = self.prefix
  if #self.order == 0 then return end
  -- First those that fail where a key has another type, so that nothing is half done.
  for _, write in ipairs(self.writes) do redis.call(unpack(write)) end
  redis.call('SET', p .. 'zxid', whole(self:number()))
  local set, gone, done = {}, {}, {}
  for _, path in ipairs(self.order) do
    local node = self.nodes[path]
    if done[path] then
      -- It was changed twice.
    elseif node then
      set[#set + 1], set[#set + 2] = p .. 'n:' .. path, cmsgpack.pack(node)
    else
      gone[#gone + 1] = p .. 'n:' .. path
    end
    done[path] = true
  end
  if #set > 0 then redis.call('MSET', unpack(set)) end
  if #gone > 0 then redis.call('DEL', unpack(gone)) end
  self:tell()
end

-- Publish the events to the sessions that watch, each once, and end their watches.
function Transaction:tell()
  local p, keys = self.prefix, {}
  for _, event in ipairs(self.fired) do
    if event[1] ~= 'L' then keys[#keys + 1] = p .. 'd:' .. event[2] end
    if event[1] ~= 'C' then keys[#keys + 1] = p .. 'l:' .. event[2] end
  end
  -- Nobody watches most of them, and one question is enough to learn that.
  if #keys == 0 or redis.call('EXISTS', unpack(keys)) == 0 then return end
  for _, event in ipairs(self.fired) do
    local kind, path = event[1], event[2]
    local heard = {}
    local function fire(key)
      for _, id in ipairs(redis.call('SMEMBERS', key)) do
        redis.call('SREM', p .. 'w:' .. id, key)
        if not heard[id] then redis.call('PUBLISH', p .. 'events:' .. id, kind .. path) end
        heard[id] = true
      end
      redis.call('DEL', key)
    end
    if kind ~= 'L' then fire(p .. 'd:' .. path) end
    if kind ~= 'C' then fire(p .. 'l:' .. path) end
  end
end

-- --- steps of a transaction --------------------------------------------------------------------

local function stat(node)
  return {
    node[CZXID], node[MZXID], node[CTIME], node[MTIME], node[VERSION],
    2 * node[MADE] - node[CHILDREN], node[OWNER], #node[DATA], node[CHILDREN], node[PZXID],
  }
end

local function has_version(node, version)
  return version == -1 or version == node[VERSION]
end

local function emptied(tx, path, node)
  if node[IS_CONTAINER] and node[CHILDREN] == 0 then
    tx:write('ZADD', tx.prefix .. 'empty', whole(tx.now), path)
  end
end

local step = {}

function step.create(tx, id, path, data, flags)
  local above = parent_of(path)
  local parent = tx:find(above)
  if not parent then return nil, 'NONODE' end
  local ephemeral = flags == EPHEMERAL or flags == EPHEMERAL + SEQUENTIAL
  if flags == SEQUENTIAL or flags == EPHEMERAL + SEQUENTIAL then
    path = path .. string.format('%010d', parent[MADE])
  end
  -- A number below the greatest is new.
  local is_new = flags >= SEQUENTIAL and flags < CONTAINER and parent[MADE] < MAX_INT
  if not is_new and tx:find(path) then return nil, 'NODEEXISTS' end
  if parent[OWNER] ~= '' then return nil, 'NOCHILDREN' end
  if parent[IS_CONTAINER] and parent[CHILDREN] == 0 then
    tx:write('ZREM', tx.prefix .. 'empty', above)
  end
  parent[MADE] = math.min(parent[MADE] + 1, MAX_INT)
  parent[CHILDREN] = parent[CHILDREN] + 1
  parent[PZXID] = tx:number()
  tx:put(above, parent)
  local node = tx:new(data, ephemeral and id or '')
  node[IS_CONTAINER] = flags == CONTAINER
  tx:put(path, node)
  emptied(tx, path, node)
  tx:write('SADD', tx.prefix .. 'c:' .. above, name_of(path))
  if ephemeral then tx:write('SADD', tx.prefix .. 'e:' .. id, path) end
  tx:fire('C', path)
  tx:fire('L', above)
  return {path, stat(node)}
end

function step.set(tx, id, path, data, version)
  local node = tx:find(path)
  if not node then return nil, 'NONODE' end
  if not has_version(node, version) then return nil, 'BADVERSION' end
  node[DATA], node[MZXID] = data, tx:number()
  node[VERSION], node[MTIME] = node[VERSION] + 1, math.floor(tx.now / 1000)
  tx:put(path, node)
  tx:fire('C', path)
  return stat(node)
end

function step.delete(tx, id, path, data, version)
  local node = tx:find(path)
  if not node then return nil, 'NONODE' end
  if not has_version(node, version) then return nil, 'BADVERSION' end
  if node[CHILDREN] > 0 then return nil, 'NOTEMPTY' end
  local above = parent_of(path)
  local parent = tx:find(above)
  parent[CHILDREN], parent[PZXID] = parent[CHILDREN] - 1, tx:number()
  tx:put(above, parent)
  tx:put(path, false)
  tx:write('SREM', tx.prefix .. 'c:' .. above, name_of(path))
  if node[OWNER] ~= '' then tx:write('SREM', tx.prefix .. 'e:' .. node[OWNER], path) end
  if node[IS_CONTAINER] then tx:write('ZREM', tx.prefix .. 'empty', path) end
  emptied(tx, above, parent)
  tx:fire('D', path)
  tx:fire('L', above)
  return true
end

function step.check(tx, id, path, data, version)
  local node = tx:find(path)
  if not node then return nil, 'NONODE' end
  if not has_version(node, version) then return nil, 'BADVERSION' end
  return true
end

-- --- sessions ----------------------------------------------------------------------------------

local function forget_watches(prefix, id)
  for _, key in ipairs(redis.call('SMEMBERS', prefix .. 'w:' .. id)) do
    redis.call('SREM', key, id)
  end
  redis.call('DEL', prefix .. 'w:' .. id)
end

local function end_session(prefix, now, token)
  local id = id_of(token)
  forget_watches(prefix, id)
  -- Lua passes no more than some thousand arguments at a time.
  repeat
    local paths = redis.call('SRANDMEMBER', prefix .. 'e:' .. id, MANY)
    local tx = transaction(prefix, now)
    for _, path in ipairs(paths) do step.delete(tx, id, path, '', -1) end
    redis.call('SREM', prefix .. 'e:' .. id, '', unpack(paths))
    tx:commit()
  until #paths == 0
  redis.call('DEL', prefix .. 'e:' .. id)
  redis.call('ZREM', prefix .. 'sessions', token)
  redis.call('HDEL', prefix .. 'last', id)
end

local function expire(prefix, now)
  repeat
    local first = redis.call('ZRANGE', prefix .. 'sessions', 0, 0, 'WITHSCORES')
    local due = first[1] and tonumber(first[2]) < now
    if due then end_session(prefix, now, first[1]) end
  until not due
end

local function reap(prefix, before)
  local idle = redis.call(
    'ZRANGE', prefix .. 'empty', '-inf', whole(before), 'BYSCORE', 'LIMIT', 0, MANY)
  for _, path in ipairs(idle) do
    local tx = transaction(prefix, clock())
    step.delete(tx, '', path, '', -1)
    tx:commit()
    redis.call('ZREM', prefix .. 'empty', path)
  end
end

-- End the sessions that are over; return the time, or nil if the caller's session is one of them.
local function enter(prefix, token)
  local now = clock()
  expire(prefix, now)
  if redis.call('ZSCORE', prefix .. 'sessions', token) then return now end
end

-- The same, and renew the caller's session.
local function enter_and_renew(prefix, token, timeout)
  local now = clock()
  expire(prefix, now)
  local deadline = whole(now + timeout * 1000)
  -- It answers 0 also where the deadline is the same to the microsecond.
  if redis.call('ZADD', prefix .. 'sessions', 'XX', 'CH', deadline, token) == 1
    or redis.call('ZSCORE', prefix .. 'sessions', token) then
    return now
  end
end

-- Take note of a server that has started, or taken the place of another, since the last session began.
--
-- It may lack the last transactions of its predecessor, and a holder that it does not know believes
-- in its lock for less than its session timeout. So it makes no contender for so long, as NFS servers
-- grant no lock in their grace period (RFC 8881, 8.4.2). Sessions that it knows get their whole
-- timeout again, as a new leader of ZooKeeper gives them. A server that has no data counts as new
-- if it never was a replica, and has an append-only file or has run for longer. (Its uptime may be a
-- second too long: it is the difference of two times in whole seconds.)
local function take_over(prefix, now, timeout)
  local facts = redis.call('INFO', 'server')
  local run = string.match(facts, 'run_id:(%x+)')
  local before = redis.call('GET', prefix .. 'run')
  if before ~= run then
    redis.call('SET', prefix .. 'run', run)
    local until_then = 0
    if before or known[prefix]
      or string.find(redis.call('INFO', 'replication'), 'second_repl_offset:%d') then
      until_then = now + timeout * 1000
    elseif not string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1') then
      local uptime = tonumber(string.match(facts, 'uptime_in_seconds:(%d+)'))
      until_then = now - (uptime - 1) * 1000000 + timeout * 1000
    end
    redis.call('SET', prefix .. 'grace', whole(until_then))
    for _, token in ipairs(redis.call('ZRANGE', prefix .. 'sessions', 0, -1)) do
      redis.call('ZADD', prefix .. 'sessions', 'GT', whole(now + timeout * 1000), token)
    end
  end
  known[prefix], grace[prefix] = true, nil
end

-- Return until when no contender is made.
local function grace_until(prefix)
  if not grace[prefix] then
    grace[prefix] = tonumber(redis.call('GET', prefix .. 'grace') or 0)
  end
  return grace[prefix]
end

local OVER = {err = 'SESSIONOVER the session is over'}
local NO_WATCH = {err = 'NOWATCH there is no such watch'}
local NO_NODE = {err = 'NONODE there is no such node'}

-- --- the functions -----------------------------------------------------------------------------
-- Arguments: the token of the session, its timeout in milliseconds, and those of the function.

-- Begin a session or, with the number of its last transaction, carry it on: if it lives, and no
-- transaction is lost. If one is, the session lasts until its deadline: this answer may not arrive,
-- and its holders believe in their locks until then.
local function connect(keys, args)
  local prefix, token, timeout, last = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  local id = id_of(token)
  take_over(prefix, clock(), timeout)
  local now = enter(prefix, token)
  if last then
    if not now then return OVER end
    if tonumber(redis.call('HGET', prefix .. 'last', id) or 0) < last then return OVER end
  end
  forget_watches(prefix, id)
  redis.call('ZADD', prefix .. 'sessions', whole(clock() + timeout * 1000), token)
  return 'OK'
end

-- Renew a session, and remove containers that have been empty for some milliseconds, the third
-- argument. Answer the milliseconds until the next session of all may end.
local function ping(keys, args)
  local prefix, token, timeout = keys[1], args[1], tonumber(args[2])
  local now = enter_and_renew(prefix, token, timeout)
  if not now then return OVER end
  reap(prefix, now - args[3] * 1000)
  local first = redis.call('ZRANGE', prefix .. 'sessions', 0, 0, 'WITHSCORES')
  return math.max(math.ceil((tonumber(first[2]) - now) / 1000), 0)
end

-- Answer whether the session was alive.
local function close(keys, args)
  local now = enter(keys[1], args[1])
  if now then end_session(keys[1], now, args[1]) end
  return now and 1 or 0
end

-- Carry out all steps or none; four arguments each: name, path, data, flags or version.
-- Answer their outcomes, or the number of the step that failed and its error.
local function change(keys, args)
  local prefix, token, timeout = keys[1], args[1], tonumber(args[2])
  local now = enter_and_renew(prefix, token, timeout)
  if not now then return OVER end
  local tx, outcomes, id = transaction(prefix, now), {}, id_of(token)
  for first = 3, #args, 4 do
    local name, path, data, number = unpack(args, first, first + 3)
    if name == 'create' and now < grace_until(prefix) and tonumber(number) ~= CONTAINER then
      return {err = 'GRACE ' .. math.ceil((grace_until(prefix) - now) / 1000)}
    end
    local outcome, refusal = step[name](tx, id, path, data, tonumber(number))
    if refusal then return {#outcomes, refusal} end
    outcomes[#outcomes + 1] = outcome
  end
  tx:commit()
  redis.call('HSET', prefix .. 'last', id, whole(tx:number()))
  return {-1, outcomes, tx:number()}
end

local function watch(prefix, id, key)
  redis.call('SADD', key, id)
  redis.call('SADD', prefix .. 'w:' .. id, key)
end

-- Read a node, and watch it if the fourth argument is "1".
local function read(keys, args)
  local prefix, token, path = keys[1], args[1], args[3]
  local now = enter(prefix, token)
  if not now then return OVER end
  local node = transaction(prefix, now):find(path)
  if not node then return NO_NODE end
  if args[4] == '1' then watch(prefix, id_of(token), prefix .. 'd:' .. path) end
  return {node[DATA], stat(node)}
end

-- List a node's children, and watch the list if the fourth argument is "1".
local function list(keys, args)
  local prefix, token, path = keys[1], args[1], args[3]
  local now = enter(prefix, token)
  if not now then return OVER end
  if not transaction(prefix, now):find(path) then return NO_NODE end
  if args[4] == '1' then watch(prefix, id_of(token), prefix .. 'l:' .. path) end
  return redis.call('SMEMBERS', prefix .. 'c:' .. path)
end

local function unwatch(keys, args)
  local prefix, id, key = keys[1], id_of(args[1]), keys[1] .. args[4] .. ':' .. args[3]
  redis.call('SREM', prefix .. 'w:' .. id, key)
  if redis.call('SREM', key, id) == 0 then return NO_WATCH end
  return 'OK'
end

local function register(name, callback, flags)
  redis.register_function{
    function_name = 'LIBRARY_' .. name, callback = callback, flags = flags,
  }
end

-- A server that is out of memory refuses what takes more of it; the rest makes room.
register('connect', connect, {'allow-oom'})
register('change', change, {})
register('free', change, {'allow-oom'})
register('read', read, {'allow-oom'})
register('list', list, {'allow-oom'})
register('unwatch', unwatch, {'allow-oom'})
register('ping', ping, {'allow-oom'})
register('close', close, {'allow-oom'})
