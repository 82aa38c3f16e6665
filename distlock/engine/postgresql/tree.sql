-- The tree of nodes that the locks need, kept by PostgreSQL: a small ZooKeeper.
--
-- What need not outlive a crash is in unlogged tables: sessions and their nodes, and containers without
-- data, which whoever misses one makes again. PostgreSQL empties these when it recovers from a
-- crash, and on a standby that is promoted (`ResetUnloggedRelations` in its reinit.c), so all sessions
-- and their nodes end then. No holder believes in its lock for longer than its session timeout, so the
-- server makes no contender for as long; a row of "state", which the migration made, is missing then.
--
-- Whoever changes the children of a node has the lock of its family, a row; parents come first. Whoever
-- watches has the lock of what it watches until its watch can be seen.
--
-- Plans are kept, and a table that was empty when its plan was made would be read whole: so the
-- functions that clients call look rows up by an index (enable_seqscan), which costs so much on paper
-- that it would be compiled (jit). A bitmap scan would mark no dead entries in the index
-- (`kill_prior_tuple` in indexam.c), and so read all holds since the last vacuum (enable_bitmapscan).
--
-- A number (czxid, mzxid, pzxid) is at least the clock's microseconds, so that tokens rise also after
-- a crash that emptied the families. Other times are milliseconds, as ZooKeeper's.

CREATE TABLE distlock_node (
  path text COLLATE "C" PRIMARY KEY,  -- that of the root is empty
  parent text COLLATE "C" NOT NULL,
  data bytea NOT NULL,
  flags int NOT NULL,
  owner bigint NOT NULL DEFAULT 0,
  version int NOT NULL DEFAULT 0,
  czxid bigint NOT NULL, mzxid bigint NOT NULL,
  ctime bigint NOT NULL, mtime bigint NOT NULL
);
CREATE INDEX distlock_node_parent ON distlock_node (parent);
CREATE UNLOGGED TABLE distlock_volatile (PRIMARY KEY (path)) INHERITS (distlock_node);
CREATE INDEX distlock_volatile_parent ON distlock_volatile (parent);
CREATE INDEX distlock_volatile_owner ON distlock_volatile (owner);
INSERT INTO distlock_node VALUES ('', '/', '', 0, 0, 0, 0, 0, 0, 0);

-- The children of a node: how many there have been, the number of the last one that came or went, and
-- about when that was.
CREATE UNLOGGED TABLE distlock_family (
  path text COLLATE "C" PRIMARY KEY, made bigint NOT NULL, pzxid bigint NOT NULL,
  used timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX distlock_family_used ON distlock_family (used);

-- `link` is the number of its connection, which rises. It `listens` only while it may be watching, as
-- each NOTIFY wakes all who listen (`SignalBackends` in async.c); through a pooler it cannot: null. It is
-- `asked` whether it lives once two thirds of its timeout have passed: the clock may have been set.
CREATE UNLOGGED TABLE distlock_session (
  id bigint PRIMARY KEY, secret text NOT NULL, link int NOT NULL, listens boolean,
  timeout interval NOT NULL, deadline timestamptz NOT NULL, asked boolean NOT NULL
) WITH (fillfactor = 50);
CREATE UNLOGGED TABLE distlock_watch (
  path text COLLATE "C", list boolean, session bigint, PRIMARY KEY (path, list, session)
);
CREATE INDEX distlock_watch_session ON distlock_watch (session);
CREATE UNLOGGED TABLE distlock_event (
  session bigint, id bigserial, told jsonb NOT NULL, PRIMARY KEY (session, id)
);
-- Since when the server grants no lock, and until when.
CREATE UNLOGGED TABLE distlock_state (
  one boolean PRIMARY KEY CHECK (one), since timestamptz NOT NULL, grace timestamptz NOT NULL
);
INSERT INTO distlock_state VALUES (true, '-infinity', '-infinity');

-- --- sessions ------------------------------------------------------------------------------------

-- Require a living session, which lives until the end of this transaction.
CREATE FUNCTION distlock_require(me bigint, word text, via int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM distlock_session WHERE id = me AND secret = word AND link = via FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the session is over' USING ERRCODE = 'DL001';
  END IF;
END $$;

-- Watch a node, or the list of its children.
CREATE FUNCTION distlock_observe(me bigint, node text, list boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  UPDATE distlock_session SET listens = true WHERE id = me AND NOT listens;
  IF FOUND THEN EXECUTE 'LISTEN distlock_' || me; END IF;
  INSERT INTO distlock_watch VALUES (node, list, me) ON CONFLICT DO NOTHING;
END $$;

CREATE FUNCTION distlock_events(me bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  told_all jsonb;
BEGIN
  PERFORM FROM distlock_event WHERE session = me;
  IF FOUND THEN
    WITH gone AS (DELETE FROM distlock_event WHERE session = me RETURNING id, told)
    SELECT jsonb_agg(told ORDER BY id) INTO told_all FROM gone;
  END IF;
  RETURN told_all;
END $$;

-- Let the standbys that have to confirm each commit confirm this one, which may have written only what
-- they do not get: so a primary that was cut off begins no session, and renews none.
CREATE FUNCTION distlock_confirm() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('synchronous_standby_names') <> '' THEN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
      PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'distlock', '');
  END IF;
END $$;

-- Begin a session, or carry one on: answers whether it lives. It waits for what the connection before
-- it has under way.
CREATE FUNCTION distlock_connect(
  me bigint, word text, via int, direct boolean, fresh boolean, timeout_ms int, unknown_ms int
) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  hears boolean := CASE WHEN direct THEN false END;
  lasts interval := timeout_ms * interval '1 ms';
  now timestamptz := clock_timestamp();
BEGIN
  INSERT INTO distlock_state VALUES (true, now, now + unknown_ms * interval '1 ms')
    ON CONFLICT DO NOTHING;
  UPDATE distlock_state SET grace = since + lasts WHERE grace > now AND grace < since + lasts;
  PERFORM distlock_confirm();
  IF fresh THEN
    INSERT INTO distlock_session VALUES (me, word, via, hears, lasts, now + lasts * 2 / 3, false);
    RETURN true;
  END IF;
  PERFORM FROM distlock_session WHERE id = me AND secret = word AND link < via FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  DELETE FROM distlock_watch WHERE session = me;
  DELETE FROM distlock_event WHERE session = me;
  UPDATE distlock_session SET link = via, listens = hears, asked = false,
    deadline = clock_timestamp() + timeout * 2 / 3 WHERE id = me;
  RETURN true;
END $$;

-- Renew a session.
CREATE FUNCTION distlock_renew(
  me bigint, word text, via int, OUT events jsonb, OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  UPDATE distlock_session SET deadline = clock_timestamp() + timeout * 2 / 3, asked = false
    WHERE id = me AND secret = word AND link = via;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the session is over' USING ERRCODE = 'DL001';
  END IF;
  UPDATE distlock_session SET listens = false
    WHERE id = me AND listens AND NOT EXISTS (SELECT FROM distlock_watch WHERE session = me);
  IF FOUND THEN EXECUTE 'UNLISTEN distlock_' || me; END IF;
  PERFORM distlock_confirm();
  answer := 'true';
  events := distlock_events(me);
END $$;

CREATE FUNCTION distlock_end(me bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  one text;
BEGIN
  DELETE FROM distlock_session WHERE id = me;
  FOR one IN SELECT path FROM distlock_volatile WHERE owner = me ORDER BY path LOOP
    PERFORM distlock_step(0, 'delete', regexp_replace(one, '/[^/]*$', ''),
      regexp_replace(one, '^.*/', ''), '', -1);
  END LOOP;
  DELETE FROM distlock_watch WHERE session = me;
  DELETE FROM distlock_event WHERE session = me;
END $$;

CREATE FUNCTION distlock_close(me bigint, word text) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
  PERFORM FROM distlock_session WHERE id = me AND secret = word FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM distlock_end(me);
  RETURN true;
END $$;

-- End the sessions whose time is over, and remove containers that were empty and unused for so long.
-- Answers the milliseconds until there is more to do.
CREATE FUNCTION distlock_expire(
  idle_ms int, OUT events jsonb, OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  one distlock_session;
  family distlock_family;
  families int := 0;
  now timestamptz := clock_timestamp();
BEGIN
  UPDATE distlock_session SET deadline = now + timeout * 2 / 3
    WHERE deadline > now + timeout;  -- the clock was set back
  UPDATE distlock_state SET since = '-infinity', grace = '-infinity' WHERE grace < now AND since < now;
  UPDATE distlock_state SET since = now, grace = now + (grace - since) WHERE since > now;
  FOR one IN SELECT * FROM distlock_session WHERE deadline < now ORDER BY id
      LIMIT 100 FOR UPDATE SKIP LOCKED LOOP
    IF one.asked THEN
      PERFORM distlock_end(one.id);
    ELSE
      UPDATE distlock_session SET asked = true, deadline = now + timeout / 3 WHERE id = one.id;
      IF one.listens THEN PERFORM pg_notify('distlock_' || one.id, 'P'); END IF;
    END IF;
  END LOOP;
  FOR family IN SELECT * FROM (
        SELECT * FROM distlock_family WHERE used < now - idle_ms * interval '1 ms'
        ORDER BY used LIMIT 100
      ) AS longest_unused ORDER BY path LOOP
    PERFORM FROM distlock_node WHERE path = family.path AND flags & 4 = 0;
    IF NOT FOUND AND family.path <> '' THEN
      PERFORM distlock_step(0, 'delete', regexp_replace(family.path, '/[^/]*$', ''),
        regexp_replace(family.path, '^.*/', ''), '', -1);
    END IF;
    UPDATE distlock_family SET used = now WHERE path = family.path;
    families := families + 1;
  END LOOP;
  IF families = 100 THEN
    answer := '0';
    RETURN;
  END IF;
  SELECT to_jsonb(ceil(extract(epoch FROM min(deadline) - clock_timestamp()) * 1000))
    INTO answer FROM distlock_session;
END $$;

-- --- changes -------------------------------------------------------------------------------------

-- Return the family of a node that may have children, and keep others from changing it.
CREATE FUNCTION distlock_lock(above text) RETURNS distlock_family LANGUAGE plpgsql AS $$
DECLARE
  found_one distlock_family;
  number bigint;
BEGIN
  LOOP
    SELECT * INTO found_one FROM distlock_family WHERE path = above FOR UPDATE;
    EXIT WHEN FOUND;
    SELECT czxid INTO number FROM distlock_node WHERE path = above AND owner = 0;
    IF NOT FOUND THEN RETURN NULL; END IF;
    INSERT INTO distlock_family
      SELECT above, coalesce(max(right(path, 10)::bigint) + 1, 0), number, clock_timestamp()
      FROM distlock_node WHERE parent = above AND path ~ '[0-9]{10}$'
      ON CONFLICT DO NOTHING;
  END LOOP;
  IF number IS NOT NULL THEN  -- the node may have gone while this one has made its family
    PERFORM FROM distlock_node WHERE path = above;
    IF NOT FOUND THEN
      DELETE FROM distlock_family WHERE path = above;
      RETURN NULL;
    END IF;
  END IF;
  RETURN found_one;
END $$;

-- Tell those who watch a node, or the list that it is in; they watch no more.
CREATE FUNCTION distlock_tell(kind text, node text, above text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  names jsonb;
BEGIN
  PERFORM FROM distlock_watch WHERE path IN (node, above);
  IF NOT FOUND THEN RETURN; END IF;
  IF kind = 'D' THEN
    SELECT jsonb_agg(substr(path, length(above) + 2)) INTO names
      FROM distlock_node WHERE parent = above;
  END IF;
  WITH gone AS (
    DELETE FROM distlock_watch WHERE
      path = node AND (kind = 'D' OR kind = 'C' AND NOT list) OR path = above AND list AND kind <> 'C'
    RETURNING session, path
  ), told AS (
    INSERT INTO distlock_event (session, told)
    SELECT DISTINCT session, CASE WHEN path = node THEN jsonb_build_array(kind, node, names)
      ELSE jsonb_build_array('L', above, null) END
    FROM gone RETURNING session
  )
  SELECT count(pg_notify('distlock_' || id, '')) INTO kind
    FROM distlock_session WHERE listens AND id IN (SELECT session FROM told);
END $$;

CREATE FUNCTION distlock_stat(node distlock_node) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
  made bigint := 0;
  last bigint;
  children bigint := 0;
BEGIN
  IF node.owner = 0 THEN
    SELECT f.made, f.pzxid INTO made, last FROM distlock_family f WHERE f.path = node.path;
    SELECT count(*) INTO children FROM distlock_node n WHERE n.parent = node.path;
  END IF;
  RETURN jsonb_build_array(node.czxid, node.mzxid, node.ctime, node.mtime, node.version,
    2 * coalesce(made, children) - children, 0, node.owner, length(node.data), children,
    greatest(last, node.czxid));
END $$;

-- Carry out one step; the option is a version, or flags.
CREATE FUNCTION distlock_step(
  me bigint, kind text, above text, name text, content bytea, option int,
  OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql AS $$
DECLARE
  family distlock_family;
  node distlock_node;
  own distlock_family;
  target text := CASE WHEN above || name = '' THEN '' ELSE above || '/' || name END;
  now timestamptz := clock_timestamp();
  number bigint := extract(epoch FROM now) * 1000000;
  ms bigint := number / 1000;
  until timestamptz;
BEGIN
  answer := 'true';
  IF kind = 'check' THEN
    PERFORM FROM distlock_node WHERE path = target FOR KEY SHARE;
    IF NOT FOUND THEN refusal := 'NONODE'; END IF;
    RETURN;
  ELSIF kind = 'set' THEN
    SELECT * INTO node FROM distlock_node WHERE path = target FOR NO KEY UPDATE;
    IF NOT FOUND THEN
      refusal := 'NONODE';
    ELSIF option NOT IN (-1, node.version) THEN
      refusal := 'BADVERSION';
    ELSE
      UPDATE distlock_node SET data = content, version = version + 1,
        mzxid = greatest(mzxid + 1, number), mtime = ms WHERE path = target RETURNING * INTO node;
      IF node.owner = 0 AND content <> '' THEN
        WITH moved AS (DELETE FROM distlock_volatile WHERE path = target RETURNING *)
          INSERT INTO distlock_node SELECT * FROM moved;
      END IF;
      answer := distlock_stat(node);
      PERFORM distlock_tell('C', target, above);
    END IF;
    RETURN;
  END IF;

  family := distlock_lock(above);
  number := greatest(family.pzxid + 1, number);
  IF kind = 'create' THEN
    SELECT grace INTO until FROM distlock_state WHERE one;
    IF until > now AND option & 4 = 0 THEN
      RAISE EXCEPTION '%', ceil(extract(epoch FROM until - now) * 1000) USING ERRCODE = 'DL002';
    END IF;
    IF family.path IS NULL THEN
      PERFORM FROM distlock_node WHERE path = above AND owner <> 0;
      refusal := CASE WHEN FOUND THEN 'NOCHILDREN' ELSE 'NONODE' END;
      RETURN;
    END IF;
    IF option & 2 = 2 THEN
      target := target || lpad(family.made::text, 10, '0');
    ELSE
      PERFORM FROM distlock_node WHERE path = target;
      IF FOUND THEN refusal := 'NODEEXISTS'; RETURN; END IF;
    END IF;
    IF option & 1 = 1 OR option & 4 = 4 AND content = '' THEN
      INSERT INTO distlock_volatile VALUES
        (target, above, content, option, me * (option & 1), 0, number, number, ms, ms);
    ELSE
      INSERT INTO distlock_node
        VALUES (target, above, content, option, 0, 0, number, number, ms, ms);
    END IF;
    answer := jsonb_build_array(target, number, ms);
  ELSE
    DELETE FROM distlock_volatile WHERE path = target AND owner <> 0
      AND option IN (-1, version) RETURNING * INTO node;
    IF NOT FOUND THEN
      SELECT * INTO node FROM distlock_node WHERE path = target FOR UPDATE;
      IF NOT FOUND THEN refusal := 'NONODE'; RETURN; END IF;
      IF option NOT IN (-1, node.version) THEN refusal := 'BADVERSION'; RETURN; END IF;
      own := distlock_lock(target);
      PERFORM FROM distlock_node WHERE parent = target;
      IF FOUND THEN refusal := 'NOTEMPTY'; RETURN; END IF;
      DELETE FROM distlock_family WHERE path = target;
      DELETE FROM distlock_node WHERE path = target;
    END IF;
    number := greatest(number, node.mzxid + 1, own.pzxid + 1);
  END IF;
  UPDATE distlock_family SET pzxid = number, made = made + (kind = 'create')::int,
    used = CASE WHEN used < now - interval '30 s' THEN now ELSE used END WHERE path = above;
  PERFORM distlock_tell(CASE kind WHEN 'create' THEN 'L' ELSE 'D' END, target, above);
END $$;

-- Carry out one step, each [kind, parent, name, data in hex, option], or all of several or none.
CREATE FUNCTION distlock_change(
  me bigint, word text, via int, steps jsonb,
  OUT events jsonb, OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  step jsonb;
  outcome record;
  told jsonb := '[]';
BEGIN
  PERFORM distlock_require(me, word, via);
  IF jsonb_array_length(steps) = 1 THEN
    step := steps->0;
    outcome := distlock_step(me, step->>0, step->>1, step->>2,
      decode(step->>3, 'hex'), (step->>4)::int);
    refusal := outcome.refusal;
    answer := jsonb_build_array(outcome.answer);
    events := distlock_events(me);
    RETURN;
  END IF;
  PERFORM distlock_lock(above) FROM (
    SELECT DISTINCT (one->>1) COLLATE "C" AS above
    FROM jsonb_array_elements(steps) one WHERE one->>0 <> 'check' ORDER BY 1
  ) AS parents;
  BEGIN
    FOR step IN SELECT * FROM jsonb_array_elements(steps) LOOP
      outcome := distlock_step(me, step->>0, step->>1, step->>2,
        decode(step->>3, 'hex'), (step->>4)::int);
      IF outcome.refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', outcome.refusal USING ERRCODE = 'DL003';
      END IF;
      told := told || jsonb_build_array(outcome.answer);
    END LOOP;
    answer := told;
  EXCEPTION WHEN SQLSTATE 'DL003' THEN
    refusal := SQLERRM;
    answer := to_jsonb(jsonb_array_length(told));  -- the step that failed
  END;
  events := distlock_events(me);
END $$;

-- Create a contender's node; if it is not alone, answer also all names, and the node before it, which
-- its session then watches.
CREATE FUNCTION distlock_join(
  me bigint, word text, via int, steps jsonb,
  OUT events jsonb, OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  step jsonb := steps->0;
  above text := step->>1;
  outcome record;
  names jsonb;
  before distlock_node;
BEGIN
  PERFORM distlock_require(me, word, via);
  outcome := distlock_step(me, 'create', above, step->>2,
    decode(step->>3, 'hex'), (step->>4)::int);
  refusal := outcome.refusal;
  answer := jsonb_build_array(outcome.answer);
  IF refusal IS NULL THEN
    SELECT jsonb_agg(substr(path, length(above) + 2)) INTO names
      FROM distlock_node WHERE parent = above;
    IF jsonb_array_length(names) > 1 THEN
      answer := answer || jsonb_build_array(names);
      SELECT * INTO before FROM distlock_volatile
        WHERE parent = above AND right(path, 10) < right(outcome.answer->>0, 10)
        ORDER BY right(path, 10) DESC LIMIT 1 FOR SHARE;
      IF FOUND THEN
        PERFORM distlock_observe(me, before.path, false);
        answer := answer || jsonb_build_array(jsonb_build_array(
          before.path, jsonb_build_array(encode(before.data, 'hex'), distlock_stat(before))));
      END IF;
    END IF;
  END IF;
  events := distlock_events(me);
END $$;

-- --- looks ---------------------------------------------------------------------------------------

-- Read a node, or list its children, and watch that; or take such a watch away.
CREATE FUNCTION distlock_look(
  me bigint, word text, via int, what text, target text, list boolean, watches boolean,
  OUT events jsonb, OUT refusal text, OUT answer jsonb
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  node distlock_node;
BEGIN
  PERFORM distlock_require(me, word, via);
  IF what = 'unwatch' THEN
    DELETE FROM distlock_watch WHERE path = target AND distlock_watch.list = $6 AND session = me;
    IF FOUND THEN answer := 'true'; ELSE refusal := 'NOWATCH'; END IF;
  ELSIF what = 'look' THEN
    IF watches THEN
      SELECT * INTO node FROM distlock_node WHERE path = target FOR SHARE;
      IF NOT FOUND THEN  -- it may just have been moved, by its first data
        SELECT * INTO node FROM distlock_node WHERE path = target FOR SHARE;
      END IF;
    ELSE
      SELECT * INTO node FROM distlock_node WHERE path = target;
    END IF;
    IF NOT FOUND THEN
      refusal := 'NONODE';
    ELSE
      IF watches THEN
        IF list THEN PERFORM distlock_lock(target); END IF;
        PERFORM distlock_observe(me, target, list);
      END IF;
      IF list THEN
        SELECT coalesce(jsonb_agg(substr(path, length(target) + 2)), '[]') INTO answer
          FROM distlock_node WHERE parent = target;
      ELSE
        answer := jsonb_build_array(encode(node.data, 'hex'), distlock_stat(node));
      END IF;
    END IF;
  END IF;
  events := distlock_events(me);
END $$;
