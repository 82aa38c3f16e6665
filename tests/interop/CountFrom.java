import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Sets the sequence counter of a node in the data of a stopped server, which no client can.
 *
 * <p>{@code java CountFrom DATA_FOLDER PATH NUMBER}
 */
public final class CountFrom {
    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        FileTxnSnapLog log = new FileTxnSnapLog(folder, folder);
        DataTree tree = new DataTree();
        ConcurrentHashMap<Long, Integer> sessions = new ConcurrentHashMap<>();
        log.restore(tree, sessions, (header, record, digest) -> {});
        tree.getNode(arguments[1]).stat.setCversion(Integer.parseInt(arguments[2]));
        log.save(tree, sessions, true);
        log.close();
        System.exit(0);
    }
}
