import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A Java service that shares locks with Django: Apache Curator's own recipes, used as they are.
 *
 * <p>{@code java Peer HOSTS SESSION_TIMEOUT}. Reads orders from stdin, one a line:
 * {@code NUMBER THREAD VERB ARGUMENT…}, and answers each with {@code NUMBER OUTCOME}, after a first
 * {@code 0 ready}. Orders for one thread are carried out one after the other, for a thread is the
 * owner of a lock; a new name makes a new thread. {@code tools.py} gives the orders.
 */
public final class Peer {
    private static final int CONNECT_MILLIS = 15_000;
    private static final int CONTEND_PATIENCE_SECONDS = 60;
    private static final int STAY_MILLIS = 5;

    private final CuratorFramework client;
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private final Map<String, InterProcessReadWriteLock> readWriteLocks = new ConcurrentHashMap<>();
    private final Map<String, BlockingQueue<String>> revocations = new ConcurrentHashMap<>();

    private Peer(String hosts, int sessionMillis) throws InterruptedException {
        client = CuratorFrameworkFactory.newClient(
                hosts, sessionMillis, CONNECT_MILLIS, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
    }

    public static void main(String[] arguments) throws Exception {
        int sessionMillis = (int) (Double.parseDouble(arguments[1]) * 1000);
        Peer peer = new Peer(arguments[0], sessionMillis);
        say("0 ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            if (order[0].equals("end")) {
                break;
            }
            peer.threads
                    .computeIfAbsent(order[1], name -> Executors.newSingleThreadExecutor())
                    .execute(() -> say(order[0] + " " + peer.outcome(order)));
        }
        peer.client.close();
        Runtime.getRuntime().halt(0);
    }

    private String outcome(String[] order) {
        try {
            return obey(order[2], Arrays.copyOfRange(order, 3, order.length));
        } catch (Exception error) {
            return "!" + error.toString().replace('\n', ' ');
        }
    }

    private String obey(String verb, String[] given) throws Exception {
        switch (verb) {
            case "acquire" -> {
                long millis = (long) (Double.parseDouble(given[2]) * 1000);
                return lock(given[0], given[1]).acquire(millis, TimeUnit.MILLISECONDS) ? "got" : "busy";
            }
            case "release" -> lock(given[0], given[1]).release();
            case "participants" -> {
                return String.join(" ", participants(lock(given[0], given[1])));
            }
            case "revocable" -> {
                BlockingQueue<String> told = new LinkedBlockingQueue<>();
                revocations.put(given[1], told);
                ((InterProcessMutex) lock(given[0], given[1])).makeRevocable(lock -> told.add("told"));
            }
            case "await-revocation" -> {
                long millis = (long) (Double.parseDouble(given[1]) * 1000);
                return String.valueOf(revocations.get(given[0]).poll(millis, TimeUnit.MILLISECONDS));
            }
            case "interrupt" -> threads.remove(given[0]).shutdownNow();
            case "revoke" -> Revoker.attemptRevoke(client, given[0]);
            case "contend" -> {
                return contend(given[0], given[1], given[2], Double.parseDouble(given[3]));
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return "done";
    }

    /** One object for each recipe and path; a recipe may have an argument, as {@code semaphore=3}. */
    private InterProcessLock lock(String recipe, String path) {
        return locks.computeIfAbsent(recipe + " " + path, ignored -> newLock(recipe.split("="), path));
    }

    private InterProcessLock newLock(String[] recipe, String path) {
        return switch (recipe[0]) {
            case "mutex" -> new InterProcessMutex(client, path);
            case "read" -> readWriteLock(path).readLock();
            case "write" -> readWriteLock(path).writeLock();
            case "semaphore" -> new Semaphore(client, path, Integer.parseInt(recipe[1]));
            case "semaphore-mutex" -> new InterProcessSemaphoreMutex(client, path);
            case "mutex-with-data" -> new MutexWithData(client, path, data(recipe[1]));
            case "latch" -> new Latch(client, path);
            case "selector" -> new Selector(client, path);
            case "none" -> new NoLock();
            default -> throw new IllegalArgumentException(recipe[0]);
        };
    }

    private InterProcessReadWriteLock readWriteLock(String path) {
        return readWriteLocks.computeIfAbsent(path, ignored -> new InterProcessReadWriteLock(client, path));
    }

    private static Collection<String> participants(InterProcessLock lock) throws Exception {
        return lock instanceof Semaphore semaphore
                ? semaphore.curators.getParticipantNodes()
                : ((InterProcessMutex) lock).getParticipantNodes();
    }

    // --- contention -------------------------------------------------------------------------------

    /** Acquire and release for some seconds; say how often, and how often somebody else was inside. */
    private String contend(String recipe, String path, String folder, double seconds) throws Exception {
        InterProcessLock lock = lock(recipe, path);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        int holds = 0;
        int overlaps = 0;
        do {
            if (!lock.acquire(CONTEND_PATIENCE_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException("busy for " + CONTEND_PATIENCE_SECONDS + " s");
            }
            try {
                overlaps += isCrowded(Path.of(folder), recipe.split("=")) ? 1 : 0;
                holds++;
            } finally {
                lock.release();
            }
        } while (System.nanoTime() < end);
        return holds + " " + overlaps;
    }

    /** What {@code Witness.is_crowded} does in {@code tools.py}: the two see each other's files. */
    private static boolean isCrowded(Path folder, String[] recipe) throws Exception {
        Path file = Files.createFile(folder.resolve(recipe[0] + "-" + UUID.randomUUID()));
        try {
            boolean reads = recipe[0].equals("read");
            int limit = recipe[0].equals("semaphore") ? Integer.parseInt(recipe[1]) : 1;
            boolean crowded = false;
            for (int look = 0; look < 2; look++) {
                Thread.sleep(look * STAY_MILLIS);
                try (Stream<Path> files = Files.list(folder)) {
                    long inside = files.filter(
                            other -> !reads || !other.getFileName().toString().startsWith("read-")).count();
                    crowded |= inside > (reads ? 0 : limit);
                }
            }
            return crowded;
        } finally {
            Files.delete(file);
        }
    }

    // --- recipes ----------------------------------------------------------------------------------

    /** A semaphore as a lock of which several may be held; gives back any of its leases. */
    private static final class Semaphore implements InterProcessLock {
        final InterProcessSemaphoreV2 curators;
        private final Queue<Lease> leases = new ConcurrentLinkedQueue<>();

        Semaphore(CuratorFramework client, String path, int limit) {
            curators = new InterProcessSemaphoreV2(client, path, limit);
        }

        @Override
        public void acquire() throws Exception {
            leases.add(curators.acquire());
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) throws Exception {
            Lease lease = curators.acquire(time, unit);
            return lease != null && leases.add(lease);
        }

        @Override
        public void release() {
            curators.returnLease(leases.remove());
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return !leases.isEmpty();
        }
    }

    /** A leader as the holder of a lock: `LeaderLatch`. */
    private static final class Latch implements InterProcessLock {
        private final CuratorFramework client;
        private final String path;
        private LeaderLatch curators;

        Latch(CuratorFramework client, String path) {
            this.client = client;
            this.path = path;
        }

        @Override
        public void acquire() throws Exception {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) throws Exception {
            LeaderLatch candidate = new LeaderLatch(client, path);
            candidate.start();
            if (candidate.await(time, unit)) {
                curators = candidate;
                return true;
            }
            candidate.close();
            return false;
        }

        @Override
        public void release() throws Exception {
            curators.close();
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return curators != null && curators.hasLeadership();
        }
    }

    /** The same of `LeaderSelector`. */
    private static final class Selector extends LeaderSelectorListenerAdapter
            implements InterProcessLock {
        private final CuratorFramework client;
        private final String path;
        private LeaderSelector curators;
        private CountDownLatch leads;
        private CountDownLatch stops;
        private CountDownLatch ended;

        Selector(CuratorFramework client, String path) {
            this.client = client;
            this.path = path;
        }

        @Override
        public void takeLeadership(CuratorFramework ignored) throws Exception {
            leads.countDown();
            stops.await();
            ended.countDown();
        }

        @Override
        public void acquire() throws Exception {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean acquire(long time, TimeUnit unit) throws Exception {
            leads = new CountDownLatch(1);
            stops = new CountDownLatch(1);
            ended = new CountDownLatch(1);
            curators = new LeaderSelector(client, path, this);
            curators.start();
            if (leads.await(time, unit)) {
                return true;
            }
            curators.close();
            return false;
        }

        @Override
        public void release() throws Exception {
            stops.countDown();
            ended.await();
            curators.close();
        }

        @Override
        public boolean isAcquiredInThisProcess() {
            return leads != null && leads.getCount() == 0;
        }
    }

    /** Curator lets a subclass say what its nodes hold. */
    private static final class MutexWithData extends InterProcessMutex {
        private final byte[] data;

        MutexWithData(CuratorFramework client, String path, byte[] data) {
            super(client, path);
            this.data = data;
        }

        @Override
        protected byte[] getLockNodeBytes() {
            return data;
        }
    }

    private static byte[] data(String kind) {
        return switch (kind) {
            case "binary" -> new byte[] {0, 1, (byte) 0x80, (byte) 0xfe, (byte) 0xff, 0x1b, '\n'};
            case "invalid-utf8" -> new byte[] {'{', '"', 'v', '"', ':', (byte) 0xc3, (byte) 0x28, '}'};
            case "half-an-object" -> "{\"v\":1,\"host\":".getBytes(StandardCharsets.UTF_8);
            case "megabyte" -> filled(1_000_000);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static byte[] filled(int length) {
        byte[] data = new byte[length];
        Arrays.fill(data, (byte) 'x');
        return data;
    }

    /** Lets everybody in: shows that the witness finds what a broken lock would do. */
    private static final class NoLock implements InterProcessLock {
        @Override
        public void acquire() {}

        @Override
        public boolean acquire(long time, TimeUnit unit) {
            return true;
        }

        @Override
        public void release() {}

        @Override
        public boolean isAcquiredInThisProcess() {
            return true;
        }
    }

    private static synchronized void say(String answer) {
        System.out.println(answer);
        System.out.flush();
    }
}
