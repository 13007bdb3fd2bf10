package org.apache.spark.internal;

/**
 * What the newest published Kafka connector of DStreams (4.1.0-preview1) calls of Spark's log keys, which were singletons of Scala then and
 * are constants of an enum since 4.1.0. Only the nested classes are used: Spark's own LogKeys comes first on the class path.
 */
public final class LogKeys {
    /** Nothing of it is private, and its name is its class file's: at run time these classes are no nest mates of Spark's LogKeys. */
    abstract static class Named implements LogKey {
        Named() {}

        @Override
        public String name() {
            String name = getClass().getName();
            return name.substring(name.indexOf('$') + 1, name.length() - 1);
        }
    }

    public static final class CONFIG$ extends Named {
        public static final CONFIG$ MODULE$ = new CONFIG$();
    }

    public static final class CONSUMER$ extends Named {
        public static final CONSUMER$ MODULE$ = new CONSUMER$();
    }

    public static final class FROM_OFFSET$ extends Named {
        public static final FROM_OFFSET$ MODULE$ = new FROM_OFFSET$();
    }

    public static final class GROUP_ID$ extends Named {
        public static final GROUP_ID$ MODULE$ = new GROUP_ID$();
    }

    public static final class INITIAL_CAPACITY$ extends Named {
        public static final INITIAL_CAPACITY$ MODULE$ = new INITIAL_CAPACITY$();
    }

    public static final class KEY$ extends Named {
        public static final KEY$ MODULE$ = new KEY$();
    }

    public static final class LOAD_FACTOR$ extends Named {
        public static final LOAD_FACTOR$ MODULE$ = new LOAD_FACTOR$();
    }

    public static final class MAX_CAPACITY$ extends Named {
        public static final MAX_CAPACITY$ MODULE$ = new MAX_CAPACITY$();
    }

    public static final class OFFSET$ extends Named {
        public static final OFFSET$ MODULE$ = new OFFSET$();
    }

    public static final class PARTITION_ID$ extends Named {
        public static final PARTITION_ID$ MODULE$ = new PARTITION_ID$();
    }

    public static final class TIME$ extends Named {
        public static final TIME$ MODULE$ = new TIME$();
    }

    public static final class TOPIC$ extends Named {
        public static final TOPIC$ MODULE$ = new TOPIC$();
    }

    public static final class TOPIC_PARTITION$ extends Named {
        public static final TOPIC_PARTITION$ MODULE$ = new TOPIC_PARTITION$();
    }

    public static final class TOPIC_PARTITION_OFFSET_RANGE$ extends Named {
        public static final TOPIC_PARTITION_OFFSET_RANGE$ MODULE$ = new TOPIC_PARTITION_OFFSET_RANGE$();
    }

    public static final class UNTIL_OFFSET$ extends Named {
        public static final UNTIL_OFFSET$ MODULE$ = new UNTIL_OFFSET$();
    }
}
