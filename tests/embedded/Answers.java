import java.util.Collections;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.ACLProvider;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;

/** Prints what a server answers: on nodes that an address may use only, and on the ensemble. */
public final class Answers {
    private static final List<ACL> MINE =
        Collections.singletonList(new ACL(ZooDefs.Perms.ALL, new Id("ip", "127.0.0.1")));

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(arguments[0])
            .sessionTimeoutMs(20_000)
            .connectionTimeoutMs(15_000)
            .retryPolicy(new RetryForever(100))
            .aclProvider(new ACLProvider() {
                @Override
                public List<ACL> getDefaultAcl() {
                    return MINE;
                }

                @Override
                public List<ACL> getAclForPath(String path) {
                    return MINE;
                }
            })
            .build();
        client.start();
        InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, arguments[1]);
        lock.writeLock().acquire();
        System.out.println("lock " + client.getACL().forPath(arguments[1]));
        System.out.println("data " + client.getData().forPath(arguments[1]).length);
        lock.writeLock().release();
        System.out.println("config " + client.getConfig().forEnsemble().length);
        client.close();
    }
}
