/*
 * Kafka's Java clients, driven by lines of JSON, so that one JVM serves all scenarios.
 *
 * A line on stdin is a request {"id": 7, "call": "send", ...}, a line on stdout its answer: {"id": 7, "result": ...} or
 * {"id": 7, "error": "TOPIC_ALREADY_EXISTS", "message": "..."}. Requests run at the same time, each in a thread, and
 * answers come as they are ready. Bytes are base64, null is null. At the end of stdin the program ends.
 *
 * Clients run with their own defaults; a request's "settings" come over them.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ClientServer {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A consumer and the records that it polled but nobody took yet. */
    private record OpenConsumer(
        KafkaConsumer<byte[], byte[]> consumer, ArrayDeque<ConsumerRecord<byte[], byte[]>> polled) {}

    /** A member of a group, which counts its rebalances, and commits before a partition is taken away. */
    private static final class OpenMember implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
        private boolean commits;
        private int rebalances;

        private OpenMember(KafkaConsumer<byte[], byte[]> consumer, String topic) {
            this.consumer = consumer;
            this.topic = topic;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            rebalances += assigned.isEmpty() ? 0 : 1;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            rebalances += revoked.isEmpty() ? 0 : 1;
            commitPolled();
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> lost) {
            rebalances++;
            uncommitted.clear();
        }

        private void commitPolled() {
            if (commits && !uncommitted.isEmpty()) {
                try {
                    consumer.commitSync(uncommitted);
                } catch (RebalanceInProgressException refused) {
                    // The records stay ours, and are committed after the next poll.
                    return;
                }
            }
            uncommitted.clear();
        }
    }

    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    private final Map<Integer, OpenConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<Integer, OpenMember> members = new ConcurrentHashMap<>();
    private final Map<String, Admin> admins = new ConcurrentHashMap<>();
    private final AtomicInteger lastHandle = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        // What a library prints must not come between the answers.
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClientServer server = new ClientServer();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            threads.execute(() -> {
                String answer = server.answer(request).toString();
                synchronized (answers) {
                    answers.println(answer);
                    answers.flush();
                }
            });
        }
        System.exit(0);
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JSON.createObjectNode();
        answer.set("id", request.get("id"));
        try {
            answer.set("result", call(request));
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause.getCause() != null
                    && (cause instanceof ExecutionException || cause instanceof CompletionException)) {
                cause = cause.getCause();
            }
            answer.put("error", nameOf(cause));
            answer.put("message", cause.toString());
        }
        return answer;
    }

    private static String nameOf(Throwable failure) {
        if (failure instanceof TimeoutException) {
            return "timeout";
        }
        if (failure instanceof OffsetOutOfRangeException) {
            return Errors.OFFSET_OUT_OF_RANGE.name();
        }
        Errors error = Errors.forException(failure);
        // A producer that cannot go on says so in an exception of its own around the broker's answer.
        if (error == Errors.UNKNOWN_SERVER_ERROR && failure.getCause() != null) {
            return nameOf(failure.getCause());
        }
        return error == Errors.UNKNOWN_SERVER_ERROR ? "local: " + failure.getClass().getSimpleName() : error.name();
    }

    private JsonNode call(JsonNode request) throws Exception {
        switch (request.get("call").asText()) {
            case "open_producer": return openProducer(request);
            case "send": return send(request);
            case "close_producer": producers.remove(request.get("handle").asInt()).close(); return null;
            case "open_consumer": return openConsumer(request);
            case "take": return take(request);
            case "close_consumer": consumers.remove(request.get("handle").asInt()).consumer().close(); return null;
            case "init_transactions": producer(request).initTransactions(); return null;
            case "begin_transaction": producer(request).beginTransaction(); return null;
            case "send_offsets": return sendOffsets(request);
            case "commit_transaction": producer(request).commitTransaction(); return null;
            case "abort_transaction": producer(request).abortTransaction(); return null;
            case "open_member": return openMember(request);
            case "poll_member": return pollMember(request);
            case "commit_member": return commitMember(request);
            case "close_member": members.remove(request.get("handle").asInt()).consumer.close(); return null;
            case "committed": return committed(request);
            case "list_groups": return listGroups(request);
            case "describe_group": return describeGroup(request);
            case "delete_group": admin(request).deleteConsumerGroups(List.of(group(request))).all().get(); return null;
            case "offsets_for_times": return offsetsForTimes(request);
            case "list_offset": return listOffset(request);
            case "create_topic": return createTopic(request);
            case "delete_topic": admin(request).deleteTopics(List.of(topic(request))).all().get(); return null;
            case "list_topics": return JSON.valueToTree(admin(request).listTopics().names().get());
            case "describe_topic": return describeTopic(request);
            case "create_partitions": return createPartitions(request);
            case "settings": return settings(request);
            case "alter_topic": return alterTopic(request);
            case "delete_records": return deleteRecords(request);
            case "describe_cluster": return describeCluster(request);
            case "log_dirs": return logDirs(request);
            case "describe_producers": return describeProducers(request);
            case "close_admin": return closeAdmin(request);
            default: throw new IllegalArgumentException("no such call: " + request.get("call"));
        }
    }

    private static Properties properties(JsonNode request) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", request.get("servers").asText());
        if (request.has("settings")) {
            request.get("settings").properties()
                .forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
        }
        return properties;
    }

    private Admin admin(JsonNode request) {
        return admins.computeIfAbsent(request.get("servers").asText(), servers -> {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", servers);
            return Admin.create(properties);
        });
    }

    private JsonNode closeAdmin(JsonNode request) {
        // It is made by the first admin call, so there may be none.
        Admin admin = admins.remove(request.get("servers").asText());
        if (admin != null) {
            admin.close();
        }
        return null;
    }

    private static String topic(JsonNode request) {
        return request.get("topic").asText();
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(topic(request), request.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    // Producers

    private JsonNode openProducer(JsonNode request) {
        int handle = lastHandle.incrementAndGet();
        ByteArraySerializer serializer = new ByteArraySerializer();
        producers.put(handle, new KafkaProducer<>(properties(request), serializer, serializer));
        return JSON.valueToTree(handle);
    }

    private KafkaProducer<byte[], byte[]> producer(JsonNode request) {
        return producers.get(request.get("handle").asInt());
    }

    private JsonNode send(JsonNode request) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(request);
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode each : request.get("records")) {
            Long timestamp = each.get("timestamp").isNull() ? null : each.get("timestamp").asLong();
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                topic(request), each.get("partition").asInt(), timestamp,
                bytes(each.get("key")), bytes(each.get("value")));
            for (JsonNode header : each.get("headers")) {
                record.headers().add(header.get(0).asText(), bytes(header.get(1)));
            }
            futures.add(producer.send(record));
        }
        ArrayNode positions = JSON.createArrayNode();
        for (Future<RecordMetadata> future : futures) {
            RecordMetadata metadata = future.get();
            long offset = metadata.hasOffset() ? metadata.offset() : -1;
            positions.add(JSON.createArrayNode().add(metadata.partition()).add(offset));
        }
        return positions;
    }

    private JsonNode sendOffsets(JsonNode request) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.get("offsets").properties().forEach(each -> offsets.put(
            new TopicPartition(topic(request), Integer.parseInt(each.getKey())),
            new OffsetAndMetadata(each.getValue().asLong())));
        OpenMember member = members.get(request.get("member").asInt());
        producer(request).sendOffsetsToTransaction(offsets, member.consumer.groupMetadata());
        return null;
    }

    // Members of groups

    private JsonNode openMember(JsonNode request) {
        OpenMember member = new OpenMember(
            new KafkaConsumer<>(properties(request), new ByteArrayDeserializer(), new ByteArrayDeserializer()),
            topic(request));
        member.consumer.subscribe(List.of(member.topic), member);
        int handle = lastHandle.incrementAndGet();
        members.put(handle, member);
        return JSON.valueToTree(handle);
    }

    private JsonNode pollMember(JsonNode request) {
        OpenMember member = members.get(request.get("handle").asInt());
        member.commits = request.get("commit").asBoolean();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(Duration.ofMillis(100))) {
            records.add(described(record));
            member.uncommitted.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        member.commitPolled();
        ArrayNode assignment = answer.putArray("assignment");
        member.consumer.assignment().forEach(each -> assignment.add(each.partition()));
        answer.put("rebalances", member.rebalances);
        return answer;
    }

    private JsonNode commitMember(JsonNode request) {
        OpenMember member = members.get(request.get("handle").asInt());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        request.get("offsets").properties().forEach(each -> offsets.put(
            new TopicPartition(member.topic, Integer.parseInt(each.getKey())),
            new OffsetAndMetadata(each.getValue().get(0).asLong(), each.getValue().get(1).asText())));
        member.consumer.commitSync(offsets);
        return null;
    }

    private static String group(JsonNode request) {
        return request.get("group").asText();
    }

    private JsonNode committed(JsonNode request) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        admin(request).listConsumerGroupOffsets(group(request)).partitionsToOffsetAndMetadata().get()
            .forEach((partition, committed) -> {
                if (partition.topic().equals(topic(request)) && committed != null) {
                    answer.set(
                        String.valueOf(partition.partition()),
                        JSON.createArrayNode().add(committed.offset()).add(committed.metadata()));
                }
            });
        return answer;
    }

    private JsonNode listGroups(JsonNode request) throws Exception {
        ArrayNode groups = JSON.createArrayNode();
        admin(request).listGroups().all().get().forEach(each -> groups.add(each.groupId()));
        return groups;
    }

    private JsonNode describeGroup(JsonNode request) throws Exception {
        ConsumerGroupDescription described = admin(request).describeConsumerGroups(List.of(group(request)))
            .describedGroups().get(group(request)).get();
        return JSON.createArrayNode().add(described.groupState().name()).add(described.members().size());
    }

    // Consumers

    private JsonNode openConsumer(JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(properties(request), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Map<TopicPartition, Long> start = new HashMap<>();
        request.get("start").properties().forEach(each -> start.put(
            new TopicPartition(topic(request), Integer.parseInt(each.getKey())), each.getValue().asLong()));
        consumer.assign(start.keySet());
        start.forEach(consumer::seek);
        int handle = lastHandle.incrementAndGet();
        consumers.put(handle, new OpenConsumer(consumer, new ArrayDeque<>()));
        return JSON.valueToTree(handle);
    }

    private JsonNode take(JsonNode request) throws Exception {
        OpenConsumer open = consumers.get(request.get("handle").asInt());
        int count = request.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofMillis(request.get("deadline_ms").asLong()).toNanos();
        while (open.polled().size() < count) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException(open.polled().size() + " of " + count + " records came");
            }
            open.consumer().poll(Duration.ofMillis(200)).forEach(open.polled()::add);
        }
        ArrayNode records = JSON.createArrayNode();
        for (int taken = 0; taken < count; taken++) {
            records.add(described(open.polled().remove()));
        }
        return records;
    }

    private static ObjectNode described(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode described = JSON.createObjectNode();
        described.put("partition", record.partition());
        described.put("offset", record.offset());
        described.put("timestamp", record.timestamp());
        described.put("append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
        described.put("key", text(record.key()));
        described.put("value", text(record.value()));
        ArrayNode headers = described.putArray("headers");
        for (Header header : record.headers()) {
            headers.add(JSON.createArrayNode().add(header.key()).add(text(header.value())));
        }
        return described;
    }

    private JsonNode offsetsForTimes(JsonNode request) {
        Map<TopicPartition, Long> asked = new HashMap<>();
        request.get("times").properties().forEach(each -> asked.put(
            new TopicPartition(topic(request), Integer.parseInt(each.getKey())), each.getValue().asLong()));
        ObjectNode answer = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties(request), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> each : consumer.offsetsForTimes(asked).entrySet()) {
                OffsetAndTimestamp found = each.getValue();
                answer.set(
                    String.valueOf(each.getKey().partition()),
                    found == null ? null : JSON.createArrayNode().add(found.offset()).add(found.timestamp()));
            }
        }
        return answer;
    }

    // Admin calls

    private JsonNode listOffset(JsonNode request) throws Exception {
        OffsetSpec spec = switch (request.get("spec").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            default -> OffsetSpec.maxTimestamp();
        };
        ListOffsetsResult.ListOffsetsResultInfo found =
            admin(request).listOffsets(Map.of(partition(request), spec)).partitionResult(partition(request)).get();
        return JSON.createArrayNode().add(found.offset()).add(found.timestamp());
    }

    private JsonNode createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.get("configs").properties().forEach(each -> configs.put(each.getKey(), each.getValue().asText()));
        short replicas = (short) request.get("replicas").asInt();
        NewTopic topic = new NewTopic(topic(request), request.get("partitions").asInt(), replicas);
        admin(request).createTopics(List.of(topic.configs(configs))).all().get();
        return null;
    }

    private JsonNode describeTopic(JsonNode request) throws Exception {
        TopicDescription topic =
            admin(request).describeTopics(List.of(topic(request))).allTopicNames().get().get(topic(request));
        ObjectNode described = JSON.createObjectNode();
        described.put("topic_id", topic.topicId().toString());
        ArrayNode partitions = described.putArray("partitions");
        for (TopicPartitionInfo each : topic.partitions()) {
            ObjectNode partition = partitions.addObject();
            partition.put("number", each.partition());
            partition.put("leader", each.leader() == null ? -1 : each.leader().id());
            partition.set("replicas", ids(each.replicas()));
            partition.set("in_sync_replicas", ids(each.isr()));
        }
        return described;
    }

    private static JsonNode ids(Collection<Node> nodes) {
        return JSON.valueToTree(nodes.stream().map(Node::id).toList());
    }

    private JsonNode createPartitions(JsonNode request) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(request.get("total").asInt());
        admin(request).createPartitions(Map.of(topic(request), total)).all().get();
        return null;
    }

    private JsonNode settings(JsonNode request) throws Exception {
        ConfigResource resource =
            new ConfigResource(ConfigResource.Type.valueOf(request.get("kind").asText()), request.get("name").asText());
        Config config = admin(request).describeConfigs(List.of(resource)).all().get().get(resource);
        ObjectNode settings = JSON.createObjectNode();
        for (ConfigEntry entry : config.entries()) {
            ObjectNode setting = settings.putObject(entry.name());
            setting.put("value", entry.value());
            setting.put("is_default", entry.isDefault());
            setting.put("is_read_only", entry.isReadOnly());
        }
        return settings;
    }

    private JsonNode alterTopic(JsonNode request) throws Exception {
        List<AlterConfigOp> operations = new ArrayList<>();
        request.get("changes").properties().forEach(each -> {
            boolean delete = each.getValue().isNull();
            ConfigEntry entry = new ConfigEntry(each.getKey(), delete ? null : each.getValue().asText());
            operations.add(new AlterConfigOp(entry, delete ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        });
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(request));
        admin(request).incrementalAlterConfigs(Map.of(resource, operations)).all().get();
        return null;
    }

    private JsonNode deleteRecords(JsonNode request) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        long lowWatermark = admin(request).deleteRecords(Map.of(partition(request), before))
            .lowWatermarks().get(partition(request)).get().lowWatermark();
        return JSON.valueToTree(lowWatermark);
    }

    private JsonNode describeCluster(JsonNode request) throws Exception {
        DescribeClusterResult cluster = admin(request).describeCluster();
        ObjectNode described = JSON.createObjectNode();
        described.put("cluster_id", cluster.clusterId().get());
        described.put("controller_id", cluster.controller().get().id());
        ObjectNode brokers = described.putObject("brokers");
        for (Node node : cluster.nodes().get()) {
            brokers.put(String.valueOf(node.id()), node.host() + ":" + node.port());
        }
        return described;
    }

    private JsonNode logDirs(JsonNode request) throws Exception {
        Admin admin = admin(request);
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(Node::id).toList();
        ObjectNode sizes = JSON.createObjectNode();
        for (Map<String, LogDirDescription> each : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription directory : each.values()) {
                directory.replicaInfos().forEach((partition, replica) -> {
                    if (partition.topic().equals(topic(request))) {
                        sizes.put(String.valueOf(partition.partition()), replica.size());
                    }
                });
            }
        }
        return sizes;
    }

    private JsonNode describeProducers(JsonNode request) throws Exception {
        ArrayNode states = JSON.createArrayNode();
        Collection<ProducerState> active = admin(request).describeProducers(List.of(partition(request)))
            .partitionResult(partition(request)).get().activeProducers();
        for (ProducerState state : active) {
            states.add(JSON.createArrayNode()
                .add(state.producerId()).add(state.producerEpoch()).add(state.lastSequence()));
        }
        return states;
    }
}
