package streamproof.kafka;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * The named steps of the protocol at which a test run crashes the job. Only a JVM with the properties {@code streamproof.run} (a run's folder)
 * and {@code streamproof.python} has any; elsewhere a step is passed without a look.
 */
final class Failpoints {
    private static final String RUN = System.getProperty("streamproof.run");
    private static final String PYTHON = System.getProperty("streamproof.python");

    private Failpoints() {}

    static boolean armed(String name) {
        return RUN != null && PYTHON != null && Files.exists(Path.of(RUN, "failpoints", name + ".armed"));
    }

    static void reach(String name, long batch) {
        reach(name, batch, List.of());
    }

    static void reach(String name, long batch, int attempt, int partition) {
        reach(name, batch, List.of("--attempt", String.valueOf(attempt), "--partition", String.valueOf(partition)));
    }

    /** Say that the protocol reached an armed step. Who says so may be killed for it. */
    private static void reach(String name, long batch, List<String> context) {
        if (!armed(name)) {
            return;
        }
        List<String> command = new ArrayList<>(List.of(PYTHON, "-m", "streamproof.engines.spark.reach", RUN, name, String.valueOf(batch)));
        command.addAll(List.of("--process", String.valueOf(ProcessHandle.current().pid())));
        command.addAll(context);
        try {
            int code = new ProcessBuilder(command).inheritIO().start().waitFor();
            if (code != 0) {
                throw new IllegalStateException("failpoint " + name + " fired in batch " + batch);
            }
        } catch (IOException error) {
            throw new IllegalStateException("failpoint " + name + " could not be reached", error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("failpoint " + name + " was interrupted", error);
        }
    }
}
