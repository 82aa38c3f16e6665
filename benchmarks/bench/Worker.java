import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A process of contenders that do as they are told: Curator's InterProcessMutex.
 *
 * <p>{@code java Worker HOSTS SESSION_SECONDS}; the orders are those of {@code worker.py}.
 */
public final class Worker {
    private static final int CONNECT_MILLIS = 10_000;
    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final CuratorFramework client;
    private final List<ExecutorService> threads = new ArrayList<>();
    /** One object for all threads of a process is what Curator's documentation recommends. */
    private final Map<String, InterProcessMutex> locks = new HashMap<>();

    private Worker(String hosts, int sessionMillis) throws InterruptedException {
        // The retry policy of Curator's own "Getting Started".
        client = CuratorFrameworkFactory.newClient(
                hosts, sessionMillis, CONNECT_MILLIS, new ExponentialBackoffRetry(1000, 3));
        client.start();
        client.blockUntilConnected();
    }

    public static void main(String[] arguments) throws Exception {
        Worker worker = new Worker(arguments[0], Integer.parseInt(arguments[1]) * 1000);
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            System.out.println(worker.obey(order.split(" ")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "run":
                Map<String, String> order = new HashMap<>();
                for (int index = 1; index < words.length; index++) {
                    String[] pair = words[index].split("=", 2);
                    order.put(pair[0], pair[1]);
                }
                return run(order);
            case "hold":
                thread(0).submit(() -> { lock(words[2]).acquire(); return null; }).get();
                return "{}";
            case "let_go":
                thread(0).submit(() -> { lock(words[2]).release(); return null; }).get();
                return "{}";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String run(Map<String, String> order) throws Exception {
        long began = PROCESS.getProcessCpuTime();
        List<Future<Contender>> runs = new ArrayList<>();
        for (int index = 0; index < Integer.parseInt(order.get("threads")); index++) {
            long number = Long.parseLong(order.get("first")) + index;
            runs.add(thread(index).submit(() -> contend(order, number)));
        }
        List<String> entries = new ArrayList<>();
        List<String> inTime = new ArrayList<>();
        List<String> cycle = new ArrayList<>();
        List<String> overlaps = new ArrayList<>();
        List<String> idle = new ArrayList<>();
        for (Future<Contender> run : runs) {
            Contender contender = run.get();
            entries.add(String.valueOf(contender.entries));
            inTime.add(String.valueOf(contender.inTime));
            cycle.add(String.valueOf(contender.median() / 1e9));
            overlaps.add(String.valueOf(contender.overlaps));
            idle.add(contender.idle.toString());
        }
        return "{\"entries\": " + entries + ", \"in_time\": " + inTime + ", \"cycle\": " + cycle
                + ", \"overlaps\": " + overlaps + ", \"idle\": " + idle
                + ", \"processor\": [" + (PROCESS.getProcessCpuTime() - began) / 1e9 + "]}";
    }

    private Contender contend(Map<String, String> order, long number) throws Exception {
        int keys = Integer.parseInt(order.get("keys"));
        InterProcessMutex[] mine = new InterProcessMutex[keys];
        for (int key = 0; key < keys; key++) {
            mine[key] = lock(order.get("prefix") + key);
        }
        long start = Long.parseLong(order.get("start"));
        long ends = start + (long) (Double.parseDouble(order.get("seconds")) * 1e9);
        long count = Long.parseLong(order.get("count"));
        long hold = (long) (Double.parseDouble(order.get("hold")) * 1e9);
        boolean refused = !order.get("refused").equals("0");
        Random random = new Random(number);
        Contender contender = new Contender(Path.of(order.get("witness")), number);
        TimeUnit.NANOSECONDS.sleep(start - System.nanoTime());
        long now = System.nanoTime();
        while (now < ends && (count == 0 || contender.entries < count)) {
            int key = random.nextInt(keys);
            if (refused) {
                if (mine[key].acquire(0, TimeUnit.MILLISECONDS)) {
                    contender.overlaps++;
                }
            } else {
                mine[key].acquire();
                contender.enter(key);
                if (hold > 0) {
                    TimeUnit.NANOSECONDS.sleep(hold);
                }
                contender.leave(key);
                mine[key].release();
            }
            contender.entries++;
            long before = now;
            now = System.nanoTime();
            contender.cycles.add(now - before);
            if (now <= ends) {
                contender.inTime++;
            }
        }
        return contender;
    }

    private InterProcessMutex lock(String key) {
        synchronized (locks) {
            return locks.computeIfAbsent(
                    key, name -> new InterProcessMutex(client, "/bench/curator/" + name));
        }
    }

    private ExecutorService thread(int index) {
        while (threads.size() <= index) {
            threads.add(Executors.newSingleThreadExecutor());
        }
        return threads.get(index);
    }

    /** What one thread has seen; {@code witness.py} tells what the numbers of a key are. */
    private static final class Contender {
        private static final int COUNTER = 1;
        private static final int LEFT_AT = 2;
        private static final int LEFT_BY = 3;
        private static final int NUMBERS = 4;

        final List<Long> idle = new ArrayList<>();
        final List<Long> cycles = new ArrayList<>();
        long entries;
        long inTime;
        long overlaps;
        private final LongBuffer cells;
        private final long number;
        private long counter;

        Contender(Path witness, long number) throws Exception {
            this.number = number;
            try (FileChannel file = FileChannel.open(
                    witness, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                cells = file.map(FileChannel.MapMode.READ_WRITE, 0, file.size())
                        .order(ByteOrder.nativeOrder()).asLongBuffer();
            }
        }

        double median() {
            long[] sorted = cycles.stream().mapToLong(Long::longValue).sorted().toArray();
            int half = sorted.length / 2;
            if (sorted.length == 0) {
                return 0;
            }
            return sorted.length % 2 == 1
                    ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2.0;
        }

        void enter(int key) {
            long now = System.nanoTime();
            int first = key * NUMBERS;
            if (cells.get(first) != 0) {
                overlaps++;
            }
            cells.put(first, number);
            counter = cells.get(first + COUNTER);
            long leftBy = cells.get(first + LEFT_BY);
            if (leftBy != 0 && leftBy != number) {
                idle.add(now - cells.get(first + LEFT_AT));
            }
        }

        void leave(int key) {
            int first = key * NUMBERS;
            if (cells.get(first) != number) {
                overlaps++;
            }
            cells.put(first + COUNTER, counter + 1);
            cells.put(first + LEFT_BY, number);
            cells.put(first, 0);
            cells.put(first + LEFT_AT, System.nanoTime());
        }
    }
}
