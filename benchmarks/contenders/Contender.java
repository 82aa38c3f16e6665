import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.ZooKeeper;

/**
 * A process that takes a lock as it is told: Curator's InterProcessMutex.
 *
 * <p>{@code java Contender HOSTS PATH SESSION_TIMEOUT}; the protocol is that of {@code python.py}.
 * Java cannot fork, and instead of a signal's exception it has {@link Thread#interrupt}.
 */
public final class Contender {
    private static final int CONNECT_MILLIS = 3000;
    private static final int ASK_MILLIS = 5;
    private static final int TRAFFIC_MILLIS = 50;

    private final BlockingQueue<String> calls = new LinkedBlockingQueue<>();
    private final CuratorFramework client;
    private final InterProcessMutex mutex;
    private boolean started;

    private Contender(String hosts, String path, int sessionMillis) {
        // The retry policy of Curator's own "Getting Started".
        client = CuratorFrameworkFactory.newClient(
                hosts, sessionMillis, CONNECT_MILLIS, new ExponentialBackoffRetry(1000, 3));
        client.getConnectionStateListenable()
                .addListener((ignored, state) -> say("told " + System.nanoTime() + " " + state));
        mutex = new InterProcessMutex(client, path);
    }

    public static void main(String[] arguments) throws Exception {
        int sessionMillis = (int) (Double.parseDouble(arguments[2]) * 1000);
        new Contender(arguments[0], arguments[1], sessionMillis).run();
    }

    private void run() throws Exception {
        Thread caller = daemon(this::call);
        daemon(this::ask);
        say("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order) {
                case "session" -> saySession();
                case "traffic" -> sendTraffic();
                case "interrupt" -> caller.interrupt();
                default -> calls.add(order);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** One thread makes all calls, for it is the owner of the lock. */
    private void call() {
        while (true) {
            String[] order;
            try {
                order = calls.take().split(" ");
            } catch (InterruptedException late) {
                continue;
            }
            long began = System.nanoTime();
            String outcome;
            try {
                outcome = obey(order);
            } catch (Exception error) {
                outcome = error.getClass().getSimpleName();
            }
            say("call " + order[0] + " " + began + " " + System.nanoTime() + " " + outcome);
        }
    }

    private String obey(String[] order) throws Exception {
        if (!started) {
            started = true;
            client.start();
        }
        switch (order[0]) {
            case "connect" -> client.blockUntilConnected(CONNECT_MILLIS, TimeUnit.MILLISECONDS);
            case "acquire" -> {
                long millis = (long) (Double.parseDouble(order[1]) * 1000);
                return mutex.acquire(millis, TimeUnit.MILLISECONDS) ? "got" : "busy";
            }
            case "release" -> mutex.release();
            default -> throw new IllegalArgumentException(order[0]);
        }
        return "ok";
    }

    private void ask() {
        boolean believed = false;
        long last = 0;
        while (true) {
            boolean believes = mutex.isAcquiredInThisProcess();
            long now = System.nanoTime();
            if (believes != believed) {
                say("believes " + (believes ? now : last) + (believes ? " yes" : " no"));
            }
            believed = believes;
            last = believes ? now : last;
            try {
                Thread.sleep(ASK_MILLIS);
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    private void saySession() throws Exception {
        ZooKeeper zookeeper = client.getZookeeperClient().getZooKeeper();
        StringBuilder password = new StringBuilder();
        for (byte part : zookeeper.getSessionPasswd()) {
            password.append(String.format("%02x", part));
        }
        say("session 0x" + Long.toHexString(zookeeper.getSessionId()) + " " + password);
    }

    private void sendTraffic() {
        Executors.newSingleThreadScheduledExecutor().scheduleAtFixedRate(
                this::sendSomething, 0, TRAFFIC_MILLIS, TimeUnit.MILLISECONDS);
    }

    private void sendSomething() {
        try {
            client.getChildren().inBackground().forPath("/");
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static synchronized void say(String answer) {
        System.out.println(answer);
        System.out.flush();
    }
}
