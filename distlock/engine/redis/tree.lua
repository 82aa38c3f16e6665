-- The tree of nodes that the locks need, kept by Redis: a small ZooKeeper.
--
-- Every key begins with the prefix, KEYS[1], which is also its hash tag, so that one server of a
-- cluster has all of them. Below it:
--
--   state         a hash: "layout"; "zxid", the number of the last transaction; "run", which process
--                 of a server the last session began on, and since which promotion; "grace", until
--                 when no contender is made there, and "span", for how long; "longest", the longest
--                 timeout of a session; by the token of each session, "<id>:<password>", the number
--                 of its last transaction; by "#<token>" the number of its connection; by "@<token>"
--                 its client's clock at its last renewal; and by "?<token>", once it was asked whether
--                 it lives, the deadline that it had missed
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
-- Times and spans are in microseconds of the server's clock, but for arguments and answers, which are
-- in milliseconds unless they say otherwise. A transaction first changes copies of the nodes, and then
-- writes all of them, so an error leaves nothing half done.
--
-- Source: ZooKeeper's PrepRequestProcessor, DataTree and ContainerManager.

local MAX_INT = 2147483647
-- The sessions, their nodes, or the containers that one call removes, so that others have their turn.
local MANY = 200
-- How long one that was asked has for its answer, at most: more than a `WAIT` before that takes.
local PATIENCE = 2000000

-- The number of this arrangement: a version of distlock with another one must not meet its keys.
local LAYOUT = '2'

-- Whether this process of the server has had sessions of a prefix, which its keys may not say any more.
local known = {}

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
    over = {}, -- the ids of sessions that end with it
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
  self:tell_next()
  for _, event in ipairs(self.fired) do
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

-- Publish the events of nodes to those who are queued behind them. Of several nodes that one is behind,
-- it hears of the last; a session that is over hears nothing, and its own end tells the one behind.
function Transaction:tell_next()
  local last, followers = {}, {}
  for _, event in ipairs(self.fired) do
    local id = event.kind ~= 'L' and self:follower(event)
    if id then
      local before = last[event.follower]
      if not before then followers[#followers + 1] = event.follower end
      if not before or before.number <= event.number then last[event.follower] = event end
      event.owner = id
    end
  end
  for _, path in ipairs(followers) do self:publish(last[path], last[path].owner) end
end

-- Return the owner of the node that is queued behind that of an event, if it may hear of it.
function Transaction:follower(event)
  local above, number = parent_of(event.path), tonumber(string.sub(event.path, -10))
  local parent = self:find(above)
  if not (number and parent) or parent[CHILDREN] == 0 then return end
  local after = redis.call(
    'ZRANGE', self.prefix .. 'c:' .. above, '(' .. number, '+inf', 'BYSCORE', 'LIMIT', 0, 1)
  event.number, event.follower = number, above .. '/' .. (after[1] or '')
  local node = after[1] and self:find(event.follower)
  return node and has(node[FLAGS], QUEUED) and not self.over[node[OWNER]] and node[OWNER]
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

-- Of the overdue sessions, end those that nobody listens for, and those that were asked and have not
-- answered; ask the others: the clock may have been set. Look at no more than MANY, and delete no more
-- nodes; return whether some are left for the next call.
local function expire(prefix, now)
  local state, sessions = prefix .. 'state', prefix .. 'sessions'
  local overdue = redis.call('ZRANGE', sessions, '-inf', now, 'BYSCORE', 'LIMIT', 0, MANY)
  local wait = math.min(redis.call('HGET', state, 'longest') / 6, PATIENCE)
  local tx, left, tokens = transaction(prefix, now), MANY, {}
  for _, token in ipairs(overdue) do
    local channel = prefix .. 'events:' .. id_of(token)
    if redis.call('HEXISTS', state, '?' .. token) == 1
        or redis.call('PUBSUB', 'NUMSUB', channel)[2] == 0 then
      tokens[#tokens + 1] = token
    else
      redis.call('HSET', state, '?' .. token, redis.call('ZSCORE', sessions, token))
      redis.call('ZADD', sessions, now + wait, token)
      redis.call('PUBLISH', channel, 'P')
    end
  end
  for _, token in ipairs(tokens) do
    tx.over[id_of(token)] = true
    unwatch_all(prefix, id_of(token))
    redis.call('HDEL', state, token, '#' .. token, '@' .. token, '?' .. token)
  end
  for _, token in ipairs(tokens) do
    local paths = left > 0 and redis.call('SPOP', prefix .. 'e:' .. id_of(token), left) or {}
    for _, path in ipairs(paths) do step.delete(tx, '', path, '', -1) end
    left = left - #paths
    if left > 0 then
      redis.call('ZREM', sessions, token)
    else
      redis.call('HSET', state, '?' .. token, 0)
      redis.call('ZADD', sessions, 0, token)
    end
  end
  tx:commit()
  return left <= 0 or #overdue == MANY
end

-- Bring the deadlines in line with the time that has really passed, where the clock was set.
--
-- The client of a session that pings says what its own clock was then. If ours says a sixth of the
-- timeout more since the renewal before, it was set ahead, or the ping was late: all deadlines follow.
-- If it was set back, they are farther away than any timeout.
local function adjust(prefix, now, token, timeout, time)
  local state = redis.call(
    'HMGET', prefix .. 'state', 'longest', 'grace', 'span', '@' .. token, '?' .. token)
  local grace, limit = tonumber(state[2]), now + state[1]
  local deadline = state[5] or redis.call('ZSCORE', prefix .. 'sessions', token)
  -- Where pings overtake each other, one brings a time before that of the last renewal.
  local ahead = now - (deadline - timeout) - math.max(time - state[4], 0)
  if ahead < timeout / 6 then ahead = 0 end
  local wrong = redis.call('ZRANGE', prefix .. 'sessions', ahead > 0 and '-inf' or limit, '+inf',
    'BYSCORE', 'WITHSCORES')
  for at = 1, #wrong, 2 do
    redis.call('ZADD', prefix .. 'sessions', math.min(wrong[at + 1] + ahead, limit), wrong[at])
  end
  if grace > 0 then
    -- One that is over stays so when the clock is set back.
    grace = grace + ahead > now and math.min(grace + ahead, now + state[3]) or 0
    redis.call('HSET', prefix .. 'state', 'grace', grace)
  end
end

-- Note that the client of a session lives, and what its own clock was when it said so.
local function renew(prefix, now, token, timeout, time)
  local state = prefix .. 'state'
  time = math.max(time, redis.call('HGET', state, '@' .. token) or 0)
  redis.call('HSET', state, '@' .. token, time)
  redis.call('HDEL', state, '?' .. token)
  redis.call('ZADD', prefix .. 'sessions', now + timeout, token)
end

-- Remove containers that have been empty since a moment; return whether there may be more.
local function reap(prefix, now, since)
  local idle = redis.call('ZRANGE', prefix .. 'empty', '-inf', since, 'BYSCORE', 'LIMIT', 0, MANY)
  if #idle == 0 then return false end
  local tx = transaction(prefix, now)
  for _, path in ipairs(idle) do
    step.delete(tx, '', path, '', -1) -- refused if it has children again
  end
  redis.call('ZREM', prefix .. 'empty', unpack(idle))
  tx:commit()
  return #idle == MANY
end

-- Return the time; the numbers of the last transaction of all, and of the caller's session, nil if that
-- is over, or goes on over a later connection; and until when no contender is made.
local function enter(prefix, token, connection)
  local state = redis.call('HMGET', prefix .. 'state', 'zxid', token, '#' .. token, 'grace')
  local alive = state[3] == connection and tonumber(state[2])
  return clock(), tonumber(state[1] or 0), alive or nil, tonumber(state[4] or 0)
end

-- Take note of a server that has started, or taken the place of another, since the last session began.
--
-- It may lack the last transactions of its predecessor, and a holder that it does not know believes
-- in its lock for less than its session timeout. So it makes no contender for so long, as NFS servers
-- grant no lock in their grace period (RFC 8881, 8.4.2). Sessions that it knows get their whole
-- timeout again, as a new leader of ZooKeeper gives them. Where no session is known, `unknown` is the
-- time to wait: since the server has started, if its keys may have been lost then only. (Its uptime
-- may be a second too long: it is the difference of two times in whole seconds.)
local function take_over(prefix, now, timeout, unknown, facts)
  local state = prefix .. 'state'
  -- It differs after each promotion of this server, but for a coincidence: it is where the stream of
  -- its primary ended (readSyncBulkPayload, shiftReplicationId in Redis' replication.c). It is -1
  -- before the first, and again once the server has freed its backlog (replicationCron).
  local promoted = string.match(facts, 'second_repl_offset:(%-?%d+)')
  local process = string.match(facts, 'run_id:(%x+)') .. ':'
  local before = redis.call('HGET', state, 'run')
  local any = redis.call('ZCARD', prefix .. 'sessions') > 0
  local longest = math.max(any and redis.call('HGET', state, 'longest') or 0, timeout)
  redis.call('HSET', state, 'longest', longest)
  local same = before and string.sub(before, 1, #process) == process
  if not same or promoted ~= '-1' and before ~= process .. promoted then
    local from, span = now, math.max(longest, any and 0 or unknown)
    -- The counters of commands outlive FLUSHALL and FUNCTION FLUSH.
    local flushed = known[prefix] or string.find(facts, 'cmdstat_flush', 1, true)
    if not (before or flushed) and promoted == '-1' then
      local uptime = tonumber(string.match(facts, 'uptime_in_seconds:(%-?%d+)'))
      from, span = math.min(now - (uptime - 1) * 1000000, now), unknown
    end
    redis.call('HSET', state, 'run', process .. promoted, 'grace', from + span, 'span', span)
    for _, token in ipairs(redis.call('ZRANGE', prefix .. 'sessions', 0, -1)) do
      redis.call('ZADD', prefix .. 'sessions', 'GT', now + longest, token)
    end
  end
  known[prefix] = true
end

-- Return the error for a server that forgets locks when its memory is full.
local function evicts(facts)
  local policy = string.match(facts, 'maxmemory_policy:(allkeys%-%w+)')
  if policy and not string.find(facts, 'maxmemory:0\r\n', 1, true) then
    return {err = 'EVICTS maxmemory-policy ' .. policy}
  end
end

local OVER = {err = 'SESSIONOVER the session is over'}
local OTHER_LAYOUT = {err = 'LAYOUT another version of distlock has its nodes here'}
local NO_WATCH = {err = 'NOWATCH there is no such watch'}
local NO_NODE = {err = 'NONODE there is no such node'}

-- --- the functions -----------------------------------------------------------------------------
-- Arguments: the token of the session, its timeout in milliseconds, the number of the connection, and
-- those of the function. A call that arrives after one of a later connection is refused: its client
-- has given it up, and would not know of what it does.

-- Begin a session or, with the number of its last transaction, carry it on: if it lives, and no
-- transaction is lost. If one is, the session lasts until its deadline: this answer may not arrive,
-- and its holders believe in their locks until then.
local function connect(keys, args)
  local prefix, token, timeout = keys[1], args[1], args[2] * 1000
  local unknown, last = args[4] * 1000, tonumber(args[5])
  local state, now = prefix .. 'state', clock()
  local facts = redis.call('INFO', 'server', 'replication', 'memory', 'commandstats')
  redis.call('HSETNX', state, 'layout', LAYOUT)
  if redis.call('HGET', state, 'layout') ~= LAYOUT then return OTHER_LAYOUT end
  local refusal = evicts(facts)
  if refusal then return refusal end
  take_over(prefix, now, timeout, unknown, facts)
  expire(prefix, now)
  local before = redis.call('HMGET', state, token, '#' .. token)
  if last and tonumber(before[1] or -1) < last then return OVER end
  if tonumber(before[2] or 0) >= tonumber(args[3]) then return OVER end
  unwatch_all(prefix, id_of(token))
  redis.call('HSETNX', state, token, 0)
  redis.call('HSET', state, '#' .. token, args[3])
  renew(prefix, now, token, timeout, tonumber(args[6]))
  return 'OK'
end

-- Renew a session, end those that are over, and remove containers that have been empty for some
-- milliseconds, the fourth argument; the fifth is the client's own clock, in microseconds. Answer
-- the milliseconds until the next ping has more of that to do.
local function ping(keys, args)
  local prefix, token, timeout = keys[1], args[1], args[2] * 1000
  local sessions = prefix .. 'sessions'
  local now, _, alive = enter(prefix, token, args[3])
  if not alive then return OVER end
  adjust(prefix, now, token, timeout, tonumber(args[5]))
  renew(prefix, now, token, timeout, tonumber(args[5]))
  local more = expire(prefix, now)
  if reap(prefix, now, now - args[4] * 1000) or more then return 0 end
  local first = redis.call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
  return math.max(math.ceil((tonumber(first[2]) - now) / 1000), 0)
end

-- Answer whether the session was alive. Over which connection this comes is no matter.
local function close(keys, args)
  local prefix, token = keys[1], args[1]
  local alive = redis.call('HEXISTS', prefix .. 'state', token)
  if alive == 1 then
    redis.call('HSET', prefix .. 'state', '?' .. token, 0)
    redis.call('ZADD', prefix .. 'sessions', 0, token)
    expire(prefix, clock())
  end
  return alive
end

-- Carry out all steps or none: each has a name, a path, data, and a version or flags. Answer -1, the
-- outcomes and the number of the transaction; or the index of the step that fails, and why.
local function change(keys, args)
  local prefix, token = keys[1], args[1]
  local now, last, alive, grace = enter(prefix, token, args[3])
  if not alive then return OVER end
  local tx, outcomes, id = transaction(prefix, now, last), {}, id_of(token)
  for first = 4, #args, 4 do
    local name, path, data, number = unpack(args, first, first + 3)
    number = tonumber(number)
    if name == 'create' and now < grace and not has(number, CONTAINER) then
      return {err = 'GRACE ' .. math.ceil((grace - now) / 1000)}
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
  local prefix, answer, flags = keys[1], change(keys, args), tonumber(args[7])
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

-- Read a node, and watch it if the fifth argument is "1".
local function read(keys, args)
  local prefix, token, path = keys[1], args[1], args[4]
  local now, last, alive = enter(prefix, token, args[3])
  if not alive then return OVER end
  local node = transaction(prefix, now, last):find(path)
  if not node then return NO_NODE end
  if args[5] == '1' then watch(prefix, id_of(token), 'd' .. path) end
  return {node[DATA], stat(node)}
end

-- List a node's children, and watch the list if the fifth argument is "1".
local function list(keys, args)
  local prefix, token, path = keys[1], args[1], args[4]
  local now, last, alive = enter(prefix, token, args[3])
  if not alive then return OVER end
  if not transaction(prefix, now, last):find(path) then return NO_NODE end
  if args[5] == '1' then watch(prefix, id_of(token), 'l' .. path) end
  return redis.call('ZRANGE', prefix .. 'c:' .. path, 0, -1)
end

local function drop_watch(keys, args)
  local _, _, alive = enter(keys[1], args[1], args[3])
  if not alive then return OVER end
  return unwatch(keys[1], id_of(args[1]), args[5] .. args[4]) and 'OK' or NO_WATCH
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
