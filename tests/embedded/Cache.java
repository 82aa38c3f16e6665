import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.retry.RetryForever;

/** Prints what Curator's cache of a path hears, and "ready" at first, until its input ends. */
public final class Cache {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], 20_000, 15_000, new RetryForever(100));
        client.start();
        CuratorCache cache = CuratorCache.build(client, arguments[1]);
        cache.listenable().addListener(CuratorCacheListener.builder()
            .forAll((type, before, after) ->
                say(type + " " + (after == null ? before : after).getPath()))
            .forInitialized(() -> say("ready"))
            .build());
        cache.start();
        while (System.in.read() >= 0) { }
        cache.close();
        client.close();
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
