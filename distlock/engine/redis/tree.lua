-- The tree of nodes that the locks need, kept by Redis: a small ZooKeeper.
--
-- Every key begins with the prefix, KEYS[1], which is also its hash tag, so that one server of a
-- cluster has all of them. Below it:
--
--   state         a hash: "layout"; "zxid", the number of the last transaction; "run", which process
--                 of a server the last session began on, and since which promotion; "grace", until
--                 when no contender is made there; and by the token of each session,
--                 "<id>:<password>", the number of its last transaction
--   sessions      a sorted set of the tokens by the sessions' deadlines
--   empty         a sorted set of containers by when they last became empty
--   n:<path>      a node, packed
--   c:<path>      the names of its children, a sorted set by their sequence numbers
--   e:<id>        the paths of a session's ephemeral nodes
--   watches       a hash: by "d<path>" the ids of the sessions that watch the node, and by "l<path>" of
--                 those that watch its list, with spaces in between
--   w:<id>        the watches of a session, as that hash names them
--   events:<id>   the channel on which a session hears of changes
--
-- Times are microseconds of the server's clock. A transaction first changes copies of the nodes, and
-- then writes all of them, so an error leaves nothing half done.
--
-- Source: ZooKeeper's PrepRequestProcessor, DataTree and ContainerManager.

local MAX_INT = 2147483647
-- The sessions or containers that one call removes.
local MANY = 100

-- The number of this arrangement: a version of distlock with another one must not meet its keys.
local LAYOUT = '1'

-- Whether this process of the server has had sessions of a prefix, which its successor cannot know; a
-- copy of its grace; and a moment before which no session of it ends.
local known, grace, no_end_before = {}, {}, {}

-- Flags of a new node. The owner of one that is QUEUED hears of each change of the one before it.
local EPHEMERAL, SEQUENTIAL, CONTAINER, QUEUED = 1, 2, 4, 8

-- The fields of a packed node.
local DATA, CZXID, MZXID, PZXID, CTIME, MTIME, VERSION, OWNER, MADE, CHILDREN, FLAGS =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11

local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function parent_of(path)
  local above = string.match(path, '^(.*)/[^/]*$')
  return above == '' and '/' or above
end

local function name_of(path)
  return string.match(path, '[^/]*$')
end

local function has(flags, flag)
  return math.floor(flags / flag) % 2 == 1
end

local function id_of(token)
  return string.match(token, '^%d+')
end

-- --- transactions ------------------------------------------------------------------------------

local Transaction = {}
Transaction.__index = Transaction

local function transaction(prefix, now, last)
  return setmetatable({
    prefix = prefix, now = now, last = last, nodes = {}, order = {}, writes = {}, fired = {},
  }, Transaction)
end

function Transaction:number()
  if not self.zxid then
    local last = self.last or redis.call('HGET', self.prefix .. 'state', 'zxid') or 0
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
    node = packed and cmsgpack.unpack(packed) or path == '/' and self:new('', '', 0) or false
    self.nodes[path] = node
  end
  return node or nil
end

function Transaction:new(data, owner, flags)
  local zxid, ms = self:number(), math.floor(self.now / 1000)
  return {data, zxid, zxid, zxid, ms, ms, 0, owner, 0, 0, flags}
end

function Transaction:put(path, node)
  self.nodes[path] = node
  self.order[#self.order + 1] = path
end

function Transaction:write(...)
  self.writes[#self.writes + 1] = {...}
end

function Transaction:fire(kind, path)
  self.fired[#self.fired + 1] = {kind = kind, path = path, heard = {}}
end

-- Write the changes, as those of the session with this token if there is one. Return their number,
-- nil if there are none.
function Transaction:commit(token)
  local p, zxid = self.prefix, self.zxid
  if #self.order == 0 then return end
  -- First those that fail where a key has another type, so that nothing is half done.
  for _, write in ipairs(self.writes) do redis.call(unpack(write)) end
  if token then
    redis.call('HSET', p .. 'state', 'zxid', zxid, token, zxid)
  else
    redis.call('HSET', p .. 'state', 'zxid', zxid)
  end
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
  return zxid
end

-- The watches that an event ends: a node was deleted, its data changed, or its list.
local ENDS = {D = {'d', 'l'}, C = {'d'}, L = {'l'}}

-- Publish the events to the sessions that watch, each once, and end their watches.
function Transaction:tell()
  local p, watches, events = self.prefix, {}, {}
  for _, event in ipairs(self.fired) do
    if event.kind ~= 'L' then self:tell_next(event) end
    for _, kind in ipairs(ENDS[event.kind]) do
      local watch = kind .. event.path
      if not events[watch] then watches[#watches + 1], events[watch] = watch, event end
    end
  end
  local ids = redis.call('HMGET', p .. 'watches', unpack(watches))
  for index, watch in ipairs(watches) do
    if ids[index] then
      redis.call('HDEL', p .. 'watches', watch)
      for id in string.gmatch(ids[index], '%d+') do
        redis.call('SREM', p .. 'w:' .. id, watch)
        self:publish(events[watch], id)
      end
    end
  end
end

-- Publish the event of a node to who is queued behind it.
function Transaction:tell_next(event)
  local above, number = parent_of(event.path), tonumber(string.sub(event.path, -10))
  local parent = self:find(above)
  if not (number and parent) or parent[CHILDREN] == 0 then return end
  local after = redis.call(
    'ZRANGE', self.prefix .. 'c:' .. above, '(' .. number, '+inf', 'BYSCORE', 'LIMIT', 0, 1)
  local node = after[1] and self:find(above .. '/' .. after[1])
  if node and has(node[FLAGS], QUEUED) then self:publish(event, node[OWNER]) end
end

-- Publish an event to a session. A deletion brings the names that are left, for whoever waited.
function Transaction:publish(event, id)
  if event.heard[id] then return end
  event.heard[id] = true
  if not event.message then
    event.message = event.kind .. event.path
    if event.kind == 'D' then
      local left = redis.call('ZRANGE', self.prefix .. 'c:' .. parent_of(event.path), 0, -1)
      event.message = event.message .. '\0' .. table.concat(left, '/')
    end
  end
  redis.call('PUBLISH', self.prefix .. 'events:' .. id, event.message)
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
  if has(node[FLAGS], CONTAINER) and node[CHILDREN] == 0 then
    tx:write('ZADD', tx.prefix .. 'empty', tx.now, path)
  end
end

local step = {}

function step.create(tx, id, path, data, flags)
  local above = parent_of(path)
  local parent = tx:find(above)
  if not parent then return nil, 'NONODE' end
  local number = parent[MADE]
  local ephemeral, sequential = has(flags, EPHEMERAL), has(flags, SEQUENTIAL)
  if sequential then path = path .. string.format('%010d', number) end
  -- A number below the greatest is new.
  local is_new = sequential and number < MAX_INT
  if not is_new and tx:find(path) then return nil, 'NODEEXISTS' end
  if parent[OWNER] ~= '' then return nil, 'NOCHILDREN' end
  parent[MADE] = math.min(number + 1, MAX_INT)
  parent[CHILDREN] = parent[CHILDREN] + 1
  parent[PZXID] = tx:number()
  tx:put(above, parent)
  local node = tx:new(data, ephemeral and id or '', flags)
  tx:put(path, node)
  emptied(tx, path, node)
  tx:write('ZADD', tx.prefix .. 'c:' .. above, sequential and number or 0, name_of(path))
  if ephemeral then tx:write('SADD', tx.prefix .. 'e:' .. id, path) end
  tx:fire('L', above)
  return {path, node[CZXID], node[CTIME], node[OWNER], #data}
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
  tx:write('ZREM', tx.prefix .. 'c:' .. above, name_of(path))
  if node[OWNER] ~= '' then tx:write('SREM', tx.prefix .. 'e:' .. node[OWNER], path) end
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

local function watch(prefix, id, name)
  local ids = redis.call('HGET', prefix .. 'watches', name)
  if redis.call('SADD', prefix .. 'w:' .. id, name) == 1 then
    redis.call('HSET', prefix .. 'watches', name, ids and ids .. ' ' .. id or id)
  end
end

-- Take a watch off a session; return whether it had it.
local function unwatch(prefix, id, name)
  if redis.call('SREM', prefix .. 'w:' .. id, name) == 0 then return false end
  local left = {}
  for other in string.gmatch(redis.call('HGET', prefix .. 'watches', name), '%d+') do
    if other ~= id then left[#left + 1] = other end
  end
  if #left > 0 then
    redis.call('HSET', prefix .. 'watches', name, table.concat(left, ' '))
  else
    redis.call('HDEL', prefix .. 'watches', name)
  end
  return true
end

local function unwatch_all(prefix, id)
  for _, name in ipairs(redis.call('SMEMBERS', prefix .. 'w:' .. id)) do unwatch(prefix, id, name) end
end

local function end_session(prefix, now, token)
  local id = id_of(token)
  unwatch_all(prefix, id)
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
  redis.call('HDEL', prefix .. 'state', token)
end

local function expire(prefix, now)
  if now < (no_end_before[prefix] or 0) then return end
  local first, due
  repeat
    first = redis.call('ZRANGE', prefix .. 'sessions', 0, 0, 'WITHSCORES')
    due = first[1] and tonumber(first[2]) < now
    if due then end_session(prefix, now, first[1]) end
  until not due
  no_end_before[prefix] = tonumber(first[2])
end

-- Let a session live for its timeout, in milliseconds, from now on.
local function renew(prefix, token, now, timeout)
  local deadline = now + timeout * 1000
  redis.call('ZADD', prefix .. 'sessions', deadline, token)
  no_end_before[prefix] = math.min(no_end_before[prefix] or 0, deadline)
end

local function reap(prefix, before)
  local idle = redis.call('ZRANGE', prefix .. 'empty', '-inf', before, 'BYSCORE', 'LIMIT', 0, MANY)
  for _, path in ipairs(idle) do
    local tx = transaction(prefix, clock())
    step.delete(tx, '', path, '', -1) -- refused if it has children again
    tx:commit()
    redis.call('ZREM', prefix .. 'empty', path)
  end
end

-- End the sessions that are over; return the time and the numbers of the last transaction of all, and
-- of the caller's session: nil if that is over.
local function enter(prefix, token)
  local now = clock()
  expire(prefix, now)
  local last = redis.call('HMGET', prefix .. 'state', 'zxid', token)
  return now, tonumber(last[1] or 0), tonumber(last[2] or nil)
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
  local facts = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
  -- It rises with each promotion of this server, and is -1 before the first.
  local promoted = string.match(facts, 'second_repl_offset:(%-?%d+)')
  local run = string.match(facts, 'run_id:(%x+)') .. ':' .. promoted
  local before = redis.call('HGET', prefix .. 'state', 'run')
  if before ~= run then
    local until_then = 0
    if before or known[prefix] or promoted ~= '-1' then
      until_then = now + timeout * 1000
    elseif not string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1') then
      local uptime = tonumber(string.match(facts, 'uptime_in_seconds:(%d+)'))
      until_then = now - (uptime - 1) * 1000000 + timeout * 1000
    end
    redis.call('HSET', prefix .. 'state', 'run', run, 'grace', until_then)
    for _, token in ipairs(redis.call('ZRANGE', prefix .. 'sessions', 0, -1)) do
      redis.call('ZADD', prefix .. 'sessions', 'GT', now + timeout * 1000, token)
    end
  end
  known[prefix], grace[prefix], no_end_before[prefix] = true, nil, nil
end

-- Return until when no contender is made.
local function grace_until(prefix)
  if not grace[prefix] then
    grace[prefix] = tonumber(redis.call('HGET', prefix .. 'state', 'grace') or 0)
  end
  return grace[prefix]
end

local OVER = {err = 'SESSIONOVER the session is over'}
local OTHER_LAYOUT = {err = 'LAYOUT another version of distlock has its nodes here'}
local NO_WATCH = {err = 'NOWATCH there is no such watch'}
local NO_NODE = {err = 'NONODE there is no such node'}

-- --- the functions -----------------------------------------------------------------------------
-- Arguments: the token of the session, its timeout in milliseconds, and those of the function.

-- Begin a session or, with the number of its last transaction, carry it on: if it lives, and no
-- transaction is lost. If one is, the session lasts until its deadline: this answer may not arrive,
-- and its holders believe in their locks until then.
local function connect(keys, args)
  local prefix, token, timeout, last = keys[1], args[1], tonumber(args[2]), tonumber(args[3])
  redis.call('HSETNX', prefix .. 'state', 'layout', LAYOUT)
  if redis.call('HGET', prefix .. 'state', 'layout') ~= LAYOUT then return OTHER_LAYOUT end
  take_over(prefix, clock(), timeout)
  local now, _, known_last = enter(prefix, token)
  if last and (known_last or -1) < last then return OVER end
  unwatch_all(prefix, id_of(token))
  redis.call('HSETNX', prefix .. 'state', token, 0)
  renew(prefix, token, clock(), timeout)
  return 'OK'
end

-- Renew a session, and remove containers that have been empty for some milliseconds, the third
-- argument. Answer the milliseconds until the next session of all may end.
local function ping(keys, args)
  local prefix, token, timeout = keys[1], args[1], tonumber(args[2])
  local now, _, alive = enter(prefix, token)
  if not alive then return OVER end
  renew(prefix, token, now, timeout)
  reap(prefix, now - args[3] * 1000)
  local first = redis.call('ZRANGE', prefix .. 'sessions', 0, 0, 'WITHSCORES')
  return math.max(math.ceil((tonumber(first[2]) - now) / 1000), 0)
end

-- Answer whether the session was alive.
local function close(keys, args)
  local now, _, alive = enter(keys[1], args[1])
  if alive then end_session(keys[1], now, args[1]) end
  return alive and 1 or 0
end

-- Carry out all steps or none: each has a name, a path, data, and a version or flags. Answer -1, the
-- outcomes and the number of the transaction; or the index of the step that fails, and why.
local function change(keys, args)
  local prefix, token = keys[1], args[1]
  local now, last, alive = enter(prefix, token)
  if not alive then return OVER end
  local tx, outcomes, id = transaction(prefix, now, last), {}, id_of(token)
  for first = 3, #args, 4 do
    local name, path, data, number = unpack(args, first, first + 3)
    number = tonumber(number)
    if name == 'create' and now < grace_until(prefix) and not has(number, CONTAINER) then
      return {err = 'GRACE ' .. math.ceil((grace_until(prefix) - now) / 1000)}
    end
    local outcome, refusal = step[name](tx, id, path, data, number)
    if refusal then return {#outcomes, refusal} end
    outcomes[#outcomes + 1] = outcome
  end
  return {-1, outcomes, tx:commit(token)}
end

-- Create a node as `change` does. Answer also the names that are beside it then; and the data and stat
-- of the one before it, if the owner of the new one will hear of its changes.
local function join(keys, args)
  local prefix, answer, flags = keys[1], change(keys, args), tonumber(args[6])
  if answer[1] == -1 then
    local path = answer[2][1][1]
    local above = parent_of(path)
    local names = redis.call('ZRANGE', prefix .. 'c:' .. above, 0, -1)
    answer[4] = names
    if #names > 1 and has(flags, SEQUENTIAL) and tonumber(string.sub(path, -10)) < MAX_INT then
      local before = transaction(prefix):find(above .. '/' .. names[#names - 1])
      answer[5] = {before[DATA], stat(before)}
    end
  end
  return answer
end

-- Read a node, and watch it if the fourth argument is "1".
local function read(keys, args)
  local prefix, token, path = keys[1], args[1], args[3]
  local now, last, alive = enter(prefix, token)
  if not alive then return OVER end
  local node = transaction(prefix, now, last):find(path)
  if not node then return NO_NODE end
  if args[4] == '1' then watch(prefix, id_of(token), 'd' .. path) end
  return {node[DATA], stat(node)}
end

-- List a node's children, and watch the list if the fourth argument is "1".
local function list(keys, args)
  local prefix, token, path = keys[1], args[1], args[3]
  local now, last, alive = enter(prefix, token)
  if not alive then return OVER end
  if not transaction(prefix, now, last):find(path) then return NO_NODE end
  if args[4] == '1' then watch(prefix, id_of(token), 'l' .. path) end
  return redis.call('ZRANGE', prefix .. 'c:' .. path, 0, -1)
end

local function drop_watch(keys, args)
  return unwatch(keys[1], id_of(args[1]), args[4] .. args[3]) and 'OK' or NO_WATCH
end

local function register(name, callback, flags)
  redis.register_function{
    function_name = 'LIBRARY_' .. name, callback = callback, flags = flags,
  }
end

-- A server that is out of memory refuses what takes more of it; the rest makes room.
register('connect', connect, {'allow-oom'})
register('change', change, {})
register('join', join, {})
register('free', change, {'allow-oom'})
register('read', read, {'allow-oom'})
register('list', list, {'allow-oom'})
register('unwatch', drop_watch, {'allow-oom'})
register('ping', ping, {'allow-oom'})
register('close', close, {'allow-oom'})
