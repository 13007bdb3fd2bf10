package streamproof.kafka;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The driver's part: finish what an earlier start left, decide about each batch, carry the decision out.
 *
 * <pre>
 *     at a start       what is open and undecided is aborted          after_abort
 *                      each decision is carried out                   between_recovered, before_finish
 *     in each batch    every transaction is found ongoing             before_decision
 *                      the decision is forced to disk                 after_decision
 *                      its transactions are committed                 between_commits
 *                      the decision is marked done                    after_commit
 * </pre>
 */
final class Committer {
    private static final Logger LOG = LoggerFactory.getLogger(Committer.class);

    private final DecisionLog log;
    private final Coordinator coordinator;
    private final String query;
    private final String start;
    private final long lastDecided;

    Committer(SinkOptions options, String queryId) {
        query = options.prefix(queryId) + ".";
        start = query + UUID.randomUUID().toString().substring(0, 8) + ".";
        log = new DecisionLog(options.decisions(), queryId, SparkContext.getOrCreate().hadoopConfiguration());
        coordinator = new Coordinator(options.client());
        try {
            recover();
            lastDecided = log.last();
        } catch (IOException error) {
            coordinator.close();
            throw new UncheckedIOException(error);
        } catch (RuntimeException error) {
            coordinator.close();
            throw error;
        }
    }

    /** What every transactional id of this start begins with. */
    String prefix() {
        return start;
    }

    /** The last batch that was decided before this start. */
    long lastDecided() {
        return lastDecided;
    }

    void close() {
        coordinator.close();
    }

    private void recover() throws IOException {
        TreeMap<Long, List<Prepared>> unfinished = log.unfinished();
        Set<String> decided = unfinished.values().stream().flatMap(List::stream).map(Prepared::transactionalId).collect(Collectors.toSet());
        Set<String> undecided = coordinator.ongoing(query);
        undecided.removeAll(decided);
        coordinator.abort(undecided);
        Failpoints.reach("after_abort", unfinished.isEmpty() ? -1 : unfinished.lastKey());
        for (Map.Entry<Long, List<Prepared>> decision : unfinished.entrySet()) {
            long batch = decision.getKey();
            commit(decision.getValue(), "between_recovered", batch);
            Failpoints.reach("before_finish", batch);
            log.finish(batch);
        }
        if (!undecided.isEmpty() || !unfinished.isEmpty()) {
            LOG.info("{}: finished batches {}, aborted {} transactions", query, unfinished.keySet(), undecided.size());
        }
    }

    /** Commit a batch. Raises TransactionLost when one of its transactions is not ongoing any more. */
    synchronized void commit(long batch, List<Prepared> prepared) {
        try {
            List<Prepared> decided = log.read(batch);
            if (decided != null) {
                commit(decided, "between_commits", batch);
                log.finish(batch);
            } else if (!prepared.isEmpty()) {
                decide(batch, prepared);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void decide(long batch, List<Prepared> prepared) throws IOException {
        Coordinator.Listing listing = coordinator.list(start);
        coordinator.requireOngoing(prepared);
        Failpoints.reach("before_decision", batch);
        log.decide(batch, prepared);
        Failpoints.reach("after_decision", batch);
        commit(prepared, "between_commits", batch);
        log.finish(batch);
        Failpoints.reach("after_commit", batch);
        // The next batch has not begun: what else is open belongs to attempts that were lost.
        Set<String> lost = listing.found();
        lost.removeAll(prepared.stream().map(Prepared::transactionalId).toList());
        coordinator.abort(lost);
    }

    private void commit(List<Prepared> decided, String failpoint, long batch) {
        if (Failpoints.armed(failpoint)) {
            coordinator.commit(decided.subList(0, Math.min(1, decided.size())));
            Failpoints.reach(failpoint, batch);
        }
        coordinator.commit(decided);
    }

    /** What was decided stays decided; everything else of this start is aborted. */
    synchronized void abort(long batch) {
        try {
            if (log.read(batch) == null) {
                coordinator.abort(coordinator.ongoing(start));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
