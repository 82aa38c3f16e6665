-- The tree of nodes that the locks need, kept by Redis: a small ZooKeeper.
--
-- Every key begins with the prefix, KEYS[1], which is also its hash tag, so that one server of a
-- cluster has all of them. Below it:
--
--   state         a hash: "layout"; "zxid", the number of the last transaction, which pings and
--                 connects bring up to the clock; "run", which process of a server the last session
--                 began on, and since which promotion; "grace", until when no contender is made there,
--                 and "span", for how long; "longest", the longest timeout of a session; by the token
--                 of each session, "<id>:<password>", the number of its last transaction; by "#<token>"
--                 the number of its connection; by "@<token>" its client's clock at its last renewal;
--                 and by "?<token>", once it was asked whether it lives, the deadline that it missed
--   sessions      a sorted set of the tokens by the sessions' deadlines
--   containers    a sorted set of the containers' paths by when a ping last looked at them
--   n:<path>      a hash: the children of a node, each by its name: flags, owner, version, czxid,
--                 ctime, unless the version is 0 also mzxid and mtime, and data, with spaces in between;
--                 and of the children "/made", how many there have been, which an ephemeral node lacks;
--                 "/last", the number of the last transaction that made or deleted one; "/only", the
--                 name of the only one, empty if there is none, or "/" if c:<path> has them; and the
--                 ids of the sessions that watch: by "/l" the list, by "<name>/d" a child, and by
--                 "<name>/l" the list of an ephemeral child. The root's path is empty.
--   c:<path>      the names of the children, a sorted set by their numbers
--   e:<id>        the paths of a session's ephemeral nodes, and an empty one
--   w:<id>        the watches of a session, each a path, \0, and the field of n:<path>
--   events:<id>   the channel on which a session hears of changes
--
-- Times and spans are in microseconds of the server's clock, but for arguments and answers, which are
-- in milliseconds unless they say otherwise. Long numbers stay texts where they only pass through: to
-- format one takes as long as a command, and Lua itself writes only 14 digits of it.
--
-- Each call runs this text from its beginning, and each function that it defines costs it time. First
-- sessions are looked after, or a node is read. Then come the steps of a transaction: nothing is
-- written before the last one cannot fail any more, so an error leaves nothing half done.
--
-- Arguments: what is asked, the token of the session, its timeout in milliseconds, the number of the
-- connection, the session's id, and those of what is asked. A call that arrives after one of a later
-- connection is refused: its client has given it up, and would not know of what it does.
--
-- Source: ZooKeeper's PrepRequestProcessor, DataTree and ContainerManager.

local call, match, sub, format = redis.call, string.match, string.sub, string.format
local prefix, asked, token, connection, id = KEYS[1], ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local state = prefix .. 'state'

-- The number of this arrangement: a version of distlock with another one must not meet its keys.
local LAYOUT = '3'
local MAX_INT = 2147483647
-- The path of a node's parent, and its name; the number that a name ends with.
local SPLIT, NUMBER = '^(.*)/([^/]*)$', '^%d+$'

local facts = call('HMGET', state, 'zxid', '#' .. token, 'grace')
local zxid, alive, grace = facts[1] or 0, facts[2], facts[3]
if alive ~= connection and asked ~= 'connect' and asked ~= 'close' then
  return {err = 'SESSIONOVER the session is over'}
end

-- What is read of the hash of a parent: of all children, the family, and of one of them. (The functions
-- that most calls only define use neither these names nor other locals, each of which costs time.)
local MADE, ONLY, LISTED, NODE, WATCHED, NODE_LISTED = 1, 2, 3, 4, 5, 6

local function look(key, name)
  if not name then return redis.call('HMGET', key, '/made', '/only', '/l') end
  local found = redis.call('HMGET', key, '/made', '/only', '/l', name, name .. '/d', name .. '/l')
  -- The root that nobody has changed.
  if name == '' then found[4] = found[4] or '0 0 0 0 0 ' end
  return found
end

-- Return how many children a node has.
local function count(path, family)
  local only = family[2] or ''
  if only ~= '/' then return only == '' and 0 or 1 end
  family.count = family.count or redis.call('ZCARD', KEYS[1] .. 'c:' .. path)
  return family.count
end

local function children(path, family)
  local only = family[2] or ''
  if only == '/' then return redis.call('ZRANGE', KEYS[1] .. 'c:' .. path, 0, -1) end
  return only == '' and {} or {only}
end

-- Return a node and, unless it is ephemeral, the facts of its children.
local function shown(path, node, family)
  if string.match(node, '^%d+ (%d+)') ~= '0' then return {node} end
  local key = KEYS[1] .. 'n:' .. path
  family = family or look(key)
  return {node, family[1], count(path, family), family.last or redis.call('HGET', key, '/last')}
end

local now -- as a text

-- Five texts for each step: what to do; the path of the parent, and the node's name; data; a version,
-- or flags.
local steps, first, answer = ARGV, 6, {-1, false}
-- The ids of the sessions that end.
local over

if asked ~= 'change' and asked ~= 'join' then
  steps, first, answer, over = {}, 1, nil, {}

  -- Write nothing. A replica, and a server that may not write, refuses this as any other write; and one
  -- that is out of memory refuses no other write after it (scriptVerifyWriteCommandAllow and
  -- scriptVerifyOOM in Redis' script.c; in 6.2 luaRedisGenericCommand in scripting.c).
  call('HDEL', state, '')

  local function unwatch(watcher, watch)
    if call('SREM', prefix .. 'w:' .. watcher, watch) == 0 then return false end
    local path, field = match(watch, '^(.*)%z(.*)$')
    local key, left = prefix .. 'n:' .. path, {}
    for other in string.gmatch(call('HGET', key, field), '%d+') do
      if other ~= watcher then left[#left + 1] = other end
    end
    if #left > 0 then
      call('HSET', key, field, table.concat(left, ' '))
    else
      call('HDEL', key, field)
    end
    return true
  end

  -- Read a node, or list its children, and watch that if the last argument is "1". Or take a watch
  -- away, of a list if it is "l".
  if asked == 'read' or asked == 'list' or asked == 'unwatch' then
    local parent, name, last = ARGV[6], ARGV[7], ARGV[8]
    local path = parent .. name == '' and '' or parent .. '/' .. name
    local node, family = look(prefix .. 'n:' .. parent, name)[NODE], look(prefix .. 'n:' .. path)
    local found = node and shown(path, node, family)
    local above, field = parent, name .. '/d'
    if asked == 'list' or last == 'l' then
      field = name .. '/l'
      if found and #found > 1 then above, field = path, '/l' end
    end
    if asked == 'unwatch' then
      return unwatch(id, above .. '\0' .. field) and 'OK' or {err = 'NOWATCH there is no such watch'}
    end
    if not node then return {err = 'NONODE there is no such node'} end
    if last == '1' and call('SADD', prefix .. 'w:' .. id, above .. '\0' .. field) == 1 then
      local ids = call('HGET', prefix .. 'n:' .. above, field)
      call('HSET', prefix .. 'n:' .. above, field, ids and ids .. ' ' .. id or id)
    end
    return asked == 'read' and found or children(path, family)
  end

  -- --- sessions --------------------------------------------------------------------------------

  local sessions, containers, timeout = prefix .. 'sessions', prefix .. 'containers', ARGV[3] * 1000
  local time = call('TIME')
  now = time[1] .. format('%06d', time[2])
  time = tonumber(now)
  -- The sessions, their nodes, or the containers that one call removes, so that others have their turn.
  local MANY = 200
  -- How long one that was asked has for its answer, at most: more than a `WAIT` before that takes.
  local PATIENCE = 2000000

  local function delete(path)
    local parent, name = match(path, SPLIT)
    for _, part in ipairs({'delete', parent, name, '', '-1'}) do steps[#steps + 1] = part end
  end

  local function unwatch_all(watcher)
    for _, watch in ipairs(call('SMEMBERS', prefix .. 'w:' .. watcher)) do unwatch(watcher, watch) end
  end

  -- Of the overdue sessions, end those that nobody listens for, and those that were asked and have
  -- not answered; ask the others: the clock may have been set. Look at no more than MANY, and delete
  -- no more nodes; return whether some are left for the next call.
  local function expire()
    local overdue = call('ZRANGE', sessions, '-inf', now, 'BYSCORE', 'LIMIT', 0, MANY)
    local wait = math.min(call('HGET', state, 'longest') / 6, PATIENCE)
    local left, tokens = MANY, {}
    for _, one in ipairs(overdue) do
      local session = match(one, '^%d+')
      local channel = prefix .. 'events:' .. session
      if call('HEXISTS', state, '?' .. one) == 1 or call('PUBSUB', 'NUMSUB', channel)[2] == 0 then
        tokens[#tokens + 1], over[session] = one, true
      else
        call('HSET', state, '?' .. one, call('ZSCORE', sessions, one))
        call('ZADD', sessions, time + wait, one)
        call('PUBLISH', channel, 'P')
      end
    end
    for _, one in ipairs(tokens) do
      unwatch_all(match(one, '^%d+'))
      call('HDEL', state, one, '#' .. one, '@' .. one, '?' .. one)
    end
    for _, one in ipairs(tokens) do
      local paths = left > 0 and call('SPOP', prefix .. 'e:' .. match(one, '^%d+'), left) or {}
      for _, path in ipairs(paths) do
        if path ~= '' then delete(path) end
      end
      left = left - #paths
      if left > 0 then
        call('ZREM', sessions, one)
      else
        call('HSET', state, '?' .. one, 0)
        call('ZADD', sessions, 0, one)
      end
    end
    return left <= 0 or #overdue == MANY
  end

  -- Remove containers that are empty and had no transaction since a moment, of those that no ping has
  -- looked at since then. Return whether there may be more.
  local function reap(since)
    local some = call('ZRANGE', containers, '-inf', since, 'BYSCORE', 'LIMIT', 0, MANY)
    for _, path in ipairs(some) do
      local key = prefix .. 'n:' .. path
      local family, changed = look(key), call('HGET', key, '/last') or 0
      if not family[MADE] then
        call('ZREM', containers, path)
      elseif changed - since > 0 or count(path, family) > 0 then
        call('ZADD', containers, now, path)
      else
        delete(path)
      end
    end
    return #some == MANY
  end

  -- Bring the deadlines in line with the time that has really passed, where the clock was set.
  --
  -- The client of a session that pings says what its own clock was then. If ours says a sixth of the
  -- timeout more since the renewal before, it was set ahead, or the ping was late: all deadlines
  -- follow. If it was set back, they are farther away than any timeout.
  local function adjust(theirs)
    local found = call('HMGET', state, 'longest', 'span', '@' .. token, '?' .. token)
    local grace, limit = tonumber(grace), time + found[1]
    local deadline = found[4] or call('ZSCORE', sessions, token)
    -- Where pings overtake each other, one brings a time before that of the last renewal.
    local ahead = time - (deadline - timeout) - math.max(theirs - found[3], 0)
    if ahead < timeout / 6 then ahead = 0 end
    local least = ahead > 0 and '-inf' or limit
    local wrong = call('ZRANGE', sessions, least, '+inf', 'BYSCORE', 'WITHSCORES')
    for at = 1, #wrong, 2 do
      call('ZADD', sessions, math.min(wrong[at + 1] + ahead, limit), wrong[at])
    end
    if grace > 0 then
      -- One that is over stays so when the clock is set back.
      grace = grace + ahead > time and math.min(grace + ahead, time + found[2]) or 0
      call('HSET', state, 'grace', grace)
    end
  end

  -- Note that the client of a session lives, and what its own clock was when it said so.
  local function renew(theirs)
    theirs = math.max(theirs, call('HGET', state, '@' .. token) or 0)
    if now - zxid > 0 then zxid = now end
    call('HSET', state, '@' .. token, theirs, 'zxid', zxid)
    call('HDEL', state, '?' .. token)
    call('ZADD', sessions, time + timeout, token)
  end

  -- Take note of a server that has started, or taken the place of another, since the last session
  -- began.
  --
  -- It may lack the last transactions of its predecessor, and a holder that it does not know believes
  -- in its lock for less than its session timeout. So it makes no contender for so long, as NFS servers
  -- grant no lock in their grace period (RFC 8881, 8.4.2). Sessions that it knows get their whole
  -- timeout again, as a new leader of ZooKeeper gives them. Where no session is known, `unknown` is the
  -- time to wait: since the server has started, if its keys may have been lost then only. (Its uptime
  -- may be a second too long: it is the difference of two times in whole seconds.) `new` says that the
  -- server does not have the script that clients load once they have begun a session (`library.mark`).
  local function take_over(unknown, new, told)
    -- It differs after each promotion of this server, but for a coincidence: it is where the stream of
    -- its primary ended (readSyncBulkPayload, shiftReplicationId in Redis' replication.c). It is -1
    -- before the first, and again once the server has freed its backlog (replicationCron).
    local promoted = match(told, 'second_repl_offset:(%-?%d+)')
    local process = match(told, 'run_id:(%x+)') .. ':'
    local before = call('HGET', state, 'run')
    local any = call('ZCARD', sessions) > 0
    local longest = math.max(any and call('HGET', state, 'longest') or 0, timeout)
    call('HSET', state, 'longest', longest)
    local same = before and string.sub(before, 1, #process) == process
    if not same or promoted ~= '-1' and before ~= process .. promoted then
      local from, span = time, math.max(longest, any and 0 or unknown)
      -- The counters of commands outlive FLUSHALL and SCRIPT FLUSH.
      local flushed = not new or string.find(told, 'cmdstat_flush', 1, true)
      if not (before or flushed) and promoted == '-1' then
        local uptime = tonumber(match(told, 'uptime_in_seconds:(%-?%d+)'))
        from, span = math.min(time - (uptime - 1) * 1000000, time), unknown
      end
      call('HSET', state, 'run', process .. promoted, 'grace', from + span, 'span', span)
      for _, one in ipairs(call('ZRANGE', sessions, 0, -1)) do
        call('ZADD', sessions, 'GT', time + longest, one)
      end
    end
  end

  -- Renew a session, end those that are over, and remove containers that have been idle for some
  -- milliseconds, the sixth argument; the seventh is the client's own clock, in microseconds. Answer
  -- the milliseconds until the next ping has more of that to do.
  if asked == 'ping' then
    adjust(tonumber(ARGV[7]))
    renew(tonumber(ARGV[7]))
    local more = expire()
    more = reap(time - ARGV[6] * 1000) or more
    local next = call('ZRANGE', sessions, 0, 0, 'WITHSCORES')
    answer = more and 0 or math.max(math.ceil((next[2] - time) / 1000), 0)

  -- Answer whether the session was alive. Over which connection this comes is no matter.
  elseif asked == 'close' then
    answer = alive and 1 or 0
    if alive then
      call('HSET', state, '?' .. token, 0)
      call('ZADD', sessions, 0, token)
      expire()
    end

  -- Begin a session or, with the number of its last transaction, carry it on: if it lives, and no
  -- transaction is lost. If one is, the session lasts until its deadline: this answer may not arrive,
  -- and its holders believe in their locks until then.
  elseif asked == 'connect' then
    local last, told = tonumber(ARGV[7]), ''
    for _, section in ipairs({'server', 'replication', 'memory', 'commandstats'}) do
      told = told .. call('INFO', section) -- Redis 6 takes one at a time
    end
    call('HSETNX', state, 'layout', LAYOUT)
    if call('HGET', state, 'layout') ~= LAYOUT then
      return {err = 'LAYOUT another version of distlock has its nodes here'}
    end
    -- It would forget locks when its memory is full.
    local policy = match(told, 'maxmemory_policy:(allkeys%-%w+)')
    if policy and not string.find(told, 'maxmemory:0\r\n', 1, true) then
      return {err = 'EVICTS maxmemory-policy ' .. policy}
    end
    take_over(ARGV[6] * 1000, ARGV[8] == '1', told)
    expire()
    local before = call('HMGET', state, token, '#' .. token)
    if last and tonumber(before[1] or -1) < last
        or tonumber(before[2] or 0) >= tonumber(connection) then
      answer = {err = 'SESSIONOVER the session is over'}
    else
      unwatch_all(id)
      call('HSETNX', state, token, 0)
      call('SADD', prefix .. 'e:' .. id, '') -- or else the key would come and go with each lock
      call('HSET', state, '#' .. token, connection)
      renew(tonumber(ARGV[9]))
      answer = 'OK'
    end
  end
end

-- --- steps -------------------------------------------------------------------------------------
-- Of several, the last one can still fail while the others are waiting; until then `families` and
-- `nodes` have what was read, with the changes.

local waiting, families, nodes = asked == 'change' and #ARGV > first + 4 and {}, nil, nil
if waiting then families, nodes = {}, {} end
local changed, events, number, beside

for at = first, #steps, 5 do
  local kind, parent, name, data, option = unpack(steps, at, at + 4)
  local key, path = prefix .. 'n:' .. parent, nil
  local creates, deletes = kind == 'create', kind == 'delete'
  local sequential = creates and option % 4 >= 2
  if not sequential then path = parent .. '/' .. name end
  local node = path and nodes and nodes[path] or look(key, path and name)
  local family = families and families[parent] or node
  local made = family[MADE] or parent == '' and 0
  local write, outcome, refusal, ms, flags, owner, version, own = call, 1
  if not now and (creates or kind == 'set') then
    local time = call('TIME')
    now = time[1] .. format('%06d', time[2])
  end
  -- The number of a transaction that creates is not below the clock, so that numbers rise also where
  -- the data was lost.
  number = number or now and now - zxid > 0 and now or format('%.0f', zxid + 1)

  if creates then
    if grace and grace ~= '0' and grace - now > 0 and option % 8 < 4 then -- no CONTAINER
      call('HDEL', state, '')
      return {err = 'GRACE ' .. math.ceil((grace - now) / 1000)}
    end
    if sequential and made then
      name = name .. format('%010d', made)
      path = parent .. '/' .. name
      -- A number below the greatest is new.
      node = tonumber(made) == MAX_INT and (nodes and nodes[path] or look(key, name))
    end
    if not made then
      local above, own_name = match(parent, SPLIT)
      local there = nodes and nodes[parent] or look(prefix .. 'n:' .. above, own_name)
      refusal = there[NODE] and 'NOCHILDREN' or 'NONODE'
    elseif node and node[NODE] then
      refusal = 'NODEEXISTS'
    end
  else
    flags, owner, version = match(node[NODE] or '', '^(%d+) (%d+) (%d+)')
    own = owner == '0' and deletes and (families and families[path] or look(prefix .. 'n:' .. path))
    if not flags then
      refusal = 'NONODE'
    elseif option ~= '-1' and option ~= version then
      refusal = 'BADVERSION'
    elseif own and count(path, own) > 0 then
      refusal = 'NOTEMPTY'
    end
  end
  if refusal and steps == ARGV then
    call('HDEL', state, '')
    return {#answer - 2, refusal}
  elseif refusal then
    deletes, own = false, nil -- the node has gone already
  end
  if waiting then
    families[parent], nodes[path] = family, node
    if at + 5 < #steps then
      write = function(...) waiting[#waiting + 1] = {...} end
    else
      for _, command in ipairs(waiting) do call(unpack(command)) end
    end
  end

  local only = family[ONLY] or ''
  changed = changed or kind ~= 'check'
  if creates then
    owner, ms = option % 2 >= 1 and id or '0', sub(now, 1, -4) -- EPHEMERAL
    if owner == id then
      write('SADD', prefix .. 'e:' .. id, path)
    elseif option % 8 >= 4 then
      write('ZADD', prefix .. 'containers', now, path)
    end
    if only == '' then
      family[ONLY] = name
    else
      local line = prefix .. 'c:' .. parent
      if waiting then family.count = count(parent, family) + 1 end
      write('ZADD', line, match(name, NUMBER, -10) or 0, name)
      if only ~= '/' then write('ZADD', line, match(only, NUMBER, -10) or 0, only) end
      family[ONLY] = '/'
    end
    local record = option .. ' ' .. owner .. ' 0 ' .. number .. ' ' .. ms .. ' ' .. data
    made = made + 1 < MAX_INT and made + 1 or MAX_INT
    write('HSET', key, name, record, '/made', made, '/only', family[ONLY], '/last', number)
    if waiting then family[MADE], family.last, nodes[path] = made, number, {[NODE] = record} end
    if owner == '0' then
      write('HSET', prefix .. 'n:' .. path, '/made', '0')
      if families then families[path] = {'0'} end
    end
    outcome = ms .. ' ' .. name
  elseif kind == 'set' then
    local czxid, ctime = match(node[NODE], '^%d+ %d+ %d+ (%d+) (%d+)')
    node[NODE] = table.concat({
      flags, owner, format('%d', version + 1), czxid, ctime, number, sub(now, 1, -4), data}, ' ')
    write('HSET', key, name, node[NODE])
    outcome = shown(path == '/' and '' or path, node[NODE], families and families[path])
  elseif deletes then
    -- The first write takes no memory, so it is carried out also where there is none.
    if own then
      write('ZREM', prefix .. 'containers', path)
      write('DEL', prefix .. 'n:' .. path)
      if families then families[path] = {} end
    elseif not (over and over[owner]) then
      write('SREM', prefix .. 'e:' .. owner, path)
    end
    if only == '/' then
      family.count = count(parent, family) - 1
      write('ZREM', prefix .. 'c:' .. parent, name)
    end
    if only ~= '/' or family.count == 0 then family[ONLY] = '' end
    node[NODE], family.last = false, number
    write('HDEL', key, name)
    write('HSET', key, '/only', family[ONLY], '/last', number)
  end

  -- Those who watch hear of it, and watch no more.
  if family[LISTED] or only == '/' or own or node and (node[WATCHED] or node[NODE_LISTED]) then
    events = events or {}
    local function tell(event, found, at, above, field)
      if found and found[at] then
        event[#event + 1], found[at] = {found[at], above .. '\0' .. field}, false
        write('HDEL', prefix .. 'n:' .. above, field)
      end
    end
    if deletes or kind == 'set' then
      local event = {message = (deletes and 'D' or 'C') .. path, path = parent, family = family,
        number = match(name, NUMBER, -10)}
      events[#events + 1] = event
      tell(event, node, WATCHED, parent, name .. '/d')
      if deletes then tell(event, node, NODE_LISTED, parent, name .. '/l') end
      tell(event, own, LISTED, path, '/l')
    end
    if family[LISTED] and (deletes or creates) then
      events[#events + 1] = {message = 'L' .. (parent == '' and '/' or parent)}
      tell(events[#events], family, LISTED, parent, '/l')
    end
  end
  if steps == ARGV then answer[#answer + 1] = outcome end
  beside = family
end

if steps ~= ARGV then
  if changed then call('HSET', state, 'zxid', number) end
elseif changed then
  call('HSET', state, 'zxid', number, token, number)
  answer[2] = number
else
  call('HDEL', state, '')
end

-- --- events ------------------------------------------------------------------------------------
-- The sessions that watch hear of an event, and that of a node also who is queued behind it. Of several
-- nodes that one is behind, it hears of the last; a session that is over hears nothing, and its own end
-- tells the one behind. A deletion brings the names that are left, for whoever waited.

if events then
  local last = {}
  for _, event in ipairs(events) do
    local path, after = event.path, event.number
    if path and steps ~= ARGV then event.family = look(prefix .. 'n:' .. path) end
    local name = after and event.family[ONLY] == '/' and call(
      'ZRANGE', prefix .. 'c:' .. path, '(' .. after, '+inf', 'BYSCORE', 'LIMIT', 0, 1)[1]
    local behind = name and call('HGET', prefix .. 'n:' .. path, name)
    local flags, owner = match(behind or '', '^(%d+) (%d+)')
    if flags and flags % 16 >= 8 and not (over and over[owner]) then -- QUEUED
      event.behind, event.owner = path .. '/' .. name, owner
      local before = last[event.behind]
      if not before or before.number - after <= 0 then last[event.behind] = event end
    end
  end
  for _, event in ipairs(events) do
    local hearers, heard = {}, {}
    if event.owner and last[event.behind] == event then
      hearers[1], heard[event.owner] = event.owner, true
    end
    for _, watch in ipairs(event) do
      for hearer in string.gmatch(watch[1], '%d+') do
        call('SREM', prefix .. 'w:' .. hearer, watch[2])
        if not heard[hearer] then hearers[#hearers + 1], heard[hearer] = hearer, true end
      end
    end
    if #hearers > 0 and sub(event.message, 1, 1) == 'D' then
      local left = table.concat(children(event.path, event.family), '/')
      event.message = event.message .. '\0' .. left
    end
    for _, hearer in ipairs(hearers) do
      call('PUBLISH', prefix .. 'events:' .. hearer, event.message)
    end
  end
end

-- --- answers -----------------------------------------------------------------------------------
-- Of a change: -1, the number of the transaction if it changed anything, and the outcomes of the steps;
-- or, above, the index of the step that fails, and why. Of a join, which creates a node: if there are
-- others, also the one before it, of whose changes its owner will hear, and all names.

if asked == 'join' and beside[ONLY] == '/' then
  local parent, names = ARGV[7], children(ARGV[7], beside)
  local name, before = match(answer[3], ' (.*)'), names[#names - 1]
  answer[4] = ARGV[10] % 4 >= 2 and before and tonumber(match(name, NUMBER, -10)) < MAX_INT
    and shown(parent .. '/' .. before, look(prefix .. 'n:' .. parent, before)[NODE])
    or false
  answer[5] = names
end
return answer
