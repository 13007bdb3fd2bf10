package streamproof.kafka;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ClientRequest;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.DefaultHostResolver;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.NetworkClientUtils;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.EndTxnRequestData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.EndTxnRequest;
import org.apache.kafka.common.requests.EndTxnResponse;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;

/**
 * Talks to a cluster's transaction coordinators. Every wait is bounded.
 *
 * <p>Kafka's admin client lists, describes and fences transactions. It cannot commit one: EndTxn is sent over Kafka's own network client, so
 * that encryption and authentication are the user's. The broker accepts it from anyone who names transactional id, producer id and epoch
 * rightly. Answers to a commit: ONGOING commits; COMPLETE_COMMIT answers "no error"; PREPARE_COMMIT answers CONCURRENT_TRANSACTIONS (ask
 * again); one that timed out or was fenced answers with an error.
 */
final class Coordinator implements AutoCloseable {
    private static final long FINISH_MS = 30_000;
    private static final long CONNECT_MS = 5_000;
    private static final long RETRY_MS = 10;
    private static final int REQUEST_MS = 15_000;
    private static final int AT_ONCE = 10_000;

    private final Admin admin;
    private final NetworkClient network;
    private final Metrics metrics = new Metrics();
    private final Map<String, Integer> coordinators = new HashMap<>();
    private final Map<Integer, Node> brokers = new HashMap<>();

    Coordinator(Map<String, Object> client) {
        Map<String, Object> config = new HashMap<>(client);
        config.keySet().retainAll(AdminClientConfig.configNames());
        client.forEach((name, value) -> {
            if (name.startsWith("config.providers")) {
                config.put(name, value);
            }
        });
        config.putIfAbsent("client.id", "streamproof-coordinator");
        config.putIfAbsent("retry.backoff.ms", RETRY_MS);
        admin = Admin.create(config);
        network = ClientUtils.createNetworkClient(new AdminClientConfig(config), "streamproof-coordinator", metrics, "streamproof",
                new LogContext("[streamproof] "), new ApiVersions(), Time.SYSTEM, AT_ONCE, REQUEST_MS, new ManualMetadataUpdater(),
                new DefaultHostResolver());
    }

    /** A question for the open transactions whose ids begin with a prefix, under way. */
    record Listing(KafkaFuture<Collection<TransactionListing>> answer, String prefix) {
        /** The ids, if all brokers have answered by now; else none. */
        Set<String> found() {
            return answer.isDone() && !answer.isCompletedExceptionally() ? ids(get(answer), prefix) : new HashSet<>();
        }
    }

    Listing list(String prefix) {
        return new Listing(admin.listTransactions(new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))).all(), prefix);
    }

    /** The ids of the open transactions that begin with the prefix. */
    Set<String> ongoing(String prefix) {
        return ids(get(list(prefix).answer), prefix);
    }

    private static Set<String> ids(Collection<TransactionListing> listed, String prefix) {
        return listed.stream().map(TransactionListing::transactionalId).filter(id -> id.startsWith(prefix)).collect(Collectors.toSet());
    }

    /** Abort by taking the ids over, so that whoever still writes there is fenced. */
    void abort(Set<String> ids) {
        if (!ids.isEmpty()) {
            get(admin.fenceProducers(ids).all());
        }
    }

    /** Raises TransactionLost naming the first that is not open any more, or that another producer has. */
    void requireOngoing(List<Prepared> prepared) {
        Map<String, TransactionDescription> found = describe(prepared);
        for (Prepared each : prepared) {
            TransactionDescription at = found.get(each.transactionalId());
            if (at.state() != TransactionState.ONGOING || at.producerId() != each.producerId() || at.producerEpoch() != each.epoch()) {
                throw new TransactionLost("transaction " + each + " is " + at + ", expected ongoing: it was aborted before it could be decided");
            }
        }
    }

    private Map<String, TransactionDescription> describe(Collection<Prepared> transactions) {
        Map<String, TransactionDescription> found =
                get(admin.describeTransactions(transactions.stream().map(Prepared::transactionalId).toList()).all());
        found.forEach((id, at) -> coordinators.put(id, at.coordinatorId()));
        return found;
    }

    /** Commit each, waiting while the broker is still at it. Raises TransactionLost when one cannot be committed any more. */
    void commit(Collection<Prepared> transactions) {
        long deadline = System.nanoTime() + FINISH_MS * 1_000_000;
        Collection<Prepared> left = transactions;
        while (!left.isEmpty()) {
            locate(left);
            Map<Prepared, Errors> answers = send(left);
            for (Map.Entry<Prepared, Errors> answer : answers.entrySet()) {
                settle(answer.getKey(), answer.getValue());
            }
            left = left.stream().filter(each -> answers.get(each) != Errors.NONE).toList();
            if (!left.isEmpty() && System.nanoTime() > deadline) {
                throw new KafkaException("the broker has not committed " + left + " within " + FINISH_MS + " ms: " + answers.values());
            }
            if (!left.isEmpty()) {
                Time.SYSTEM.sleep(RETRY_MS);
            }
        }
    }

    private void settle(Prepared transaction, Errors answer) {
        if (answer == Errors.NONE || answer == Errors.CONCURRENT_TRANSACTIONS) {
            return;
        }
        if (!(answer.exception() instanceof RetriableException)) {
            throw new TransactionLost("transaction " + transaction + " was decided to commit, but the broker answers " + answer
                    + ": it timed out or was fenced, its records are not visible");
        }
        coordinators.remove(transaction.transactionalId());
    }

    private void locate(Collection<Prepared> transactions) {
        List<Prepared> unknown = transactions.stream().filter(each -> !coordinators.containsKey(each.transactionalId())).toList();
        if (!unknown.isEmpty()) {
            describe(unknown);
        }
        if (!unknown.isEmpty() || transactions.stream().anyMatch(each -> !brokers.containsKey(coordinators.get(each.transactionalId())))) {
            brokers.clear();
            get(admin.describeCluster().nodes()).forEach(node -> brokers.put(node.id(), node));
        }
    }

    /** Send all at once, and wait for the answers. A broker that does not answer is retriable. */
    private Map<Prepared, Errors> send(Collection<Prepared> transactions) {
        Map<Prepared, Errors> answers = new LinkedHashMap<>();
        Set<Prepared> underWay = new HashSet<>();
        for (Prepared each : transactions) {
            Node broker = brokers.get(coordinators.get(each.transactionalId()));
            if (broker == null || !connected(broker)) {
                answers.put(each, Errors.NETWORK_EXCEPTION);
                continue;
            }
            EndTxnRequest.Builder request = new EndTxnRequest.Builder(new EndTxnRequestData().setTransactionalId(each.transactionalId())
                    .setProducerId(each.producerId()).setProducerEpoch(each.epoch()).setCommitted(true));
            ClientRequest sent = network.newClientRequest(broker.idString(), request, Time.SYSTEM.milliseconds(), true, REQUEST_MS,
                    answer -> {
                        underWay.remove(each);
                        answers.put(each, error(answer));
                    });
            underWay.add(each);
            network.send(sent, Time.SYSTEM.milliseconds());
        }
        while (!underWay.isEmpty()) {
            network.poll(REQUEST_MS, Time.SYSTEM.milliseconds());
        }
        return answers;
    }

    private static Errors error(ClientResponse answer) {
        if (answer.authenticationException() != null) {
            throw answer.authenticationException();
        }
        return answer.hasResponse() ? ((EndTxnResponse) answer.responseBody()).error() : Errors.NETWORK_EXCEPTION;
    }

    private boolean connected(Node broker) {
        try {
            return NetworkClientUtils.awaitReady(network, broker, Time.SYSTEM, CONNECT_MS);
        } catch (IOException refused) {
            return false;
        }
    }

    private static <T> T get(KafkaFuture<T> future) {
        try {
            return future.get();
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException cause ? cause : new KafkaException(error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new org.apache.kafka.common.errors.InterruptException(error);
        }
    }

    @Override
    public void close() {
        admin.close();
        network.close();
        metrics.close();
    }
}
