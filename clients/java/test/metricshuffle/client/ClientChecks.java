package metricshuffle.client;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPairGenerator;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** {@code ClientChecks VECTORS.json FOLDER}: the outbox, retries, refusals and kills, against a server that answers what it is told to. */
final class ClientChecks {
  private static final String TICKET = "11".repeat(16);
  private static final int CHANGES = 60;
  private static Json numbers;
  private static Path scratch;

  private ClientChecks() {}

  @FunctionalInterface
  private interface Check {
    void run() throws Exception;
  }

  // What the checks are made of

  private static void isTrue(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }

  private static void isEqual(Object seen, Object expected) {
    isTrue(expected.equals(seen), seen + " is not " + expected);
  }

  private static <Failure extends Throwable> Failure fails(Class<Failure> kind, String words, Check act) {
    try {
      act.run();
    } catch (Throwable raised) {
      isTrue(kind.isInstance(raised), raised + " is no " + kind);
      isTrue(Pattern.compile(words).matcher(raised.getMessage()).find(), raised.getMessage() + " does not say " + words);
      return kind.cast(raised);
    }
    throw new AssertionError("this should have failed: " + words);
  }

  private static Words untouched() {
    return new Words(() -> {
      throw new AssertionError("noise was drawn");
    });
  }

  /** Answers posts with these statuses, one after the other (the last one for ever), and keeps what was posted. */
  private static final class Shuffler implements AutoCloseable {
    final List<String> posts = Collections.synchronizedList(new ArrayList<>());
    final List<Map<String, List<String>>> headers = Collections.synchronizedList(new ArrayList<>());
    final List<Integer> statuses;
    volatile String state = "{\"phase\": \"open\", \"reason\": \"\"}";
    volatile int pause = 0;
    private final HttpServer server;

    Shuffler(Integer... statuses) throws IOException {
      this.statuses = Collections.synchronizedList(new ArrayList<>(Arrays.asList(statuses)));
      server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
      server.createContext("/", this::answer);
      server.setExecutor(Executors.newCachedThreadPool(act -> {
        Thread thread = new Thread(act);
        thread.setDaemon(true);
        return thread;
      }));
      server.start();
    }

    String url() {
      return "http://127.0.0.1:" + server.getAddress().getPort();
    }

    private void answer(HttpExchange exchange) throws IOException {
      byte[] body = exchange.getRequestBody().readAllBytes();
      if (exchange.getRequestMethod().equals("GET")) {
        boolean known = exchange.getRequestURI().getPath().endsWith("/state") && state != null;
        byte[] text = (known ? state : "{}").getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(known ? 200 : 404, text.length);
        for (byte part : text) {
          exchange.getResponseBody().write(part);
          if (pause > 0) trickle(exchange);
        }
      } else {
        int status;
        synchronized (statuses) {
          headers.add(new HashMap<>(exchange.getRequestHeaders()));
          posts.add(exchange.getRequestURI() + " " + Bytes.hexOf(body));
          status = statuses.size() > 1 ? statuses.remove(0) : statuses.get(0);
        }
        if (status == 429) exchange.getResponseHeaders().set("Retry-After", "2");
        if (status == 302) exchange.getResponseHeaders().set("Location", url() + "/elsewhere");
        if (status > 0) exchange.sendResponseHeaders(status, -1);
      }
      exchange.close();
    }

    private void trickle(HttpExchange exchange) throws IOException {
      exchange.getResponseBody().flush();
      try {
        Thread.sleep(pause);
      } catch (InterruptedException stopped) {
        throw new IOException(stopped);
      }
    }

    @Override
    public void close() {
      server.stop(0);
    }
  }

  /** A shuffler that answers so, a collection of its own, and an empty outbox. */
  private static final class Round implements AutoCloseable {
    final Shuffler shuffler;
    final Path folder;
    final byte[] served;
    final Collection collection;

    Round(Map<String, Object> change, Integer... statuses) throws Exception {
      shuffler = new Shuffler(statuses);
      folder = Files.createTempDirectory(scratch, "round").resolve("outbox");
      served = served(shuffler.url(), change);
      collection = Collection.read(served, Bytes.hexOf(Bytes.sha256(served)));
    }

    Round(Integer... statuses) throws Exception {
      this(Map.of(), statuses);
    }

    Options options() {
      return Options.in(folder).patience(Duration.ofSeconds(20));
    }

    Client client() {
      return new Client(collection, options());
    }

    Client client(Options options) {
      return new Client(collection, options);
    }

    Client hasty() {
      return client(options().patience(Duration.ZERO));
    }

    /** The entries of the outbox. */
    List<Entry> kept() throws IOException {
      List<Entry> entries = new ArrayList<>();
      if (!Files.exists(folder)) return entries;
      try (Stream<Path> files = Files.list(folder)) {
        for (Path file : files.toList()) {
          if (file.getFileName().toString().equals("lock")) continue;
          isTrue(file.toString().endsWith(".json"), file + " was left");
          entries.add(Entry.read(Files.readString(file)));
        }
      }
      return entries;
    }

    @Override
    public void close() {
      shuffler.close();
    }
  }

  private static byte[] served(String url, Map<String, Object> change) throws Exception {
    List<String> keys = new ArrayList<>();
    for (int party = 0; party < 2; party++) {
      byte[] encoded = KeyPairGenerator.getInstance("X25519").generateKeyPair().getPublic().getEncoded();
      keys.add(Bytes.hexOf(Arrays.copyOfRange(encoded, encoded.length - 32, encoded.length)));
    }
    Map<String, Object> terms = new LinkedHashMap<>();
    terms.put("format", "metricshuffle-collection/1");
    terms.put("suite", "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM");
    terms.put("task", Json.write(Map.of("digest", "a".repeat(64))));
    terms.put("recipe", numbers);
    terms.put("round", 1);
    terms.put("messages", 10);
    terms.put("payload", 9);
    terms.put("ticket", 0);
    terms.put("hops", List.of(Map.of("key", keys.get(1), "name", "", "url", url)));
    terms.put("analyst", Map.of("key", keys.get(0), "name", ""));
    terms.put("opens", "2020-01-01T00:00:00Z");
    terms.put("closes", "2090-01-01T00:00:00Z");
    terms.put("extends", "2090-01-01T00:00:00Z");
    terms.put("delay", 0);
    terms.put("admission", "open");
    terms.put("minimum", 1);
    terms.put("maximum", 100);
    terms.putAll(change);
    return Json.write(terms).getBytes(StandardCharsets.UTF_8);
  }

  private static Map<String, Object> withTickets() {
    return Map.of("ticket", 16, "admission", "tickets");
  }

  // The checks

  private static void oneReportIsSent() throws Exception {
    try (Round round = new Round(204)) {
      isEqual(round.client().submit(Value.of(480)), new Client.Receipt(true, "The report is stored."));
      String path = "/v1/collections/" + round.collection.digest() + "/reports ";
      isEqual(round.shuffler.posts.size(), 1);
      isTrue(round.shuffler.posts.get(0).startsWith(path), round.shuffler.posts.get(0));
      isEqual(round.shuffler.posts.get(0).length(), path.length() + 2 * round.collection.reportSize());
      Map<String, List<String>> headers = round.shuffler.headers.get(0);
      isEqual(headers.get("Content-type"), List.of("application/octet-stream"));
      isEqual(headers.get("Content-length"), List.of("" + round.collection.reportSize()));
      isEqual(headers.get("User-agent"), List.of("metricshuffle-client"));
      isTrue(!headers.containsKey("Cookie") && !headers.containsKey("Referer"), headers.toString());
    }
  }

  private static void valuesThatAreNotAskedForAreRefused() throws Exception {
    try (Round round = new Round(204)) {
      List<Value> values = List.of(
          Value.of(-21), Value.of(981), Value.of(0.5), Value.of(Double.NaN), Value.of("7"),
          new Value.Cell(1, 1), new Value.Place(1, 1), new Value.Items(List.of(Value.of(7))),
          new Value.LabelledNumber("a", 7));
      for (Value value : values) fails(ValueError.class, "^Enter ", () -> round.client().submit(value));
      isEqual(round.kept(), List.of());
      isEqual(round.shuffler.posts.size(), 0);
    }
  }

  private static void recordsThatAreNotAskedForAreRefused() throws Exception {
    String number = "{\"kind\": \"number\", \"whole\": true, \"low\": \"0\", \"high\": \"5\", \"step\": \"1.0\","
        + " \"rounding\": \"nearest\", \"unit\": \"\"}";
    String label = "\"label\": {\"kind\": \"label\", \"labels\": [\"a\", \"b\", \"c\"]}, \"most\": 2}";
    String steps = ", \"number\": " + number + ", \"width\": 6, ";
    Json row = Json.read("{\"kind\": \"row\"" + steps + "\"columns\": [\"x\", \"y\"]}");
    Json set = Json.read("{\"kind\": \"set\", " + label);
    Json keys = Json.read("{\"kind\": \"keys\"" + steps + label);
    Json trip = Json.read("{\"kind\": \"trip\", \"labels\": [\"a\", \"b\"]}");
    Value a = new Value.LabelledNumber("a", 1);
    Map<Value, Json> refused = new LinkedHashMap<>();
    refused.put(new Value.Items(List.of(Value.of(1))), row);
    refused.put(new Value.Items(List.of(Value.of(1), Value.of(6))), row);
    refused.put(new Value.Items(List.of(Value.of(1), Value.of("b"))), row);
    refused.put(new Value.Items(List.of(Value.of("d"))), set);
    refused.put(new Value.Items(List.of(Value.of("a"), Value.of("b"), Value.of("c"))), set);
    refused.put(new Value.Items(List.of(a, a)), keys);
    refused.put(new Value.Items(List.of(Value.of("a"))), keys);
    refused.put(new Value.Trip("a", "c"), trip);
    refused.put(Value.of("a"), trip);
    for (Map.Entry<Value, Json> each : refused.entrySet()) {
      fails(ValueError.class, "^(y: |a: )?(Enter|Choose) ", () -> Input.codesOf(each.getValue(), each.getKey()));
    }
    List<Value> twice = List.of(Value.of("c"), Value.of("a"), Value.of("c"));
    isTrue(Arrays.equals(Input.codesOf(set, new Value.Items(twice)), new long[] {5, 1}), "a label twice counts once");
    isEqual(Input.codesOf(keys, new Value.Items(List.of())).length, 0);
    isEqual(Input.codesOf(trip, new Value.Trip("b", "a"))[0], 2L);
  }

  private static void theSameBytesAreSentUntilTheyAreStored() throws Exception {
    try (Round round = new Round(503, 0, 429, 408, 302, 204)) {
      long begun = System.nanoTime();
      round.client().submit(Value.of(7));
      isEqual(round.shuffler.posts.size(), 6);
      isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
      isTrue(System.nanoTime() - begun > 3_500_000_000L, "it did not wait as long as it was told to");
      Entry entry = round.kept().get(0);
      isTrue(entry.state() == Entry.State.SENT && entry.report() == null && entry.boxes() == null, "it was kept");
    }
  }

  private static void retryAfterIsNeverCutShort() throws Exception {
    for (int run = 0; run < 3; run++) {
      try (Round round = new Round(429, 204)) {
        long begun = System.nanoTime();
        round.client().submit(Value.of(7));
        isTrue(System.nanoTime() - begun >= 2_000_000_000L, "it was sent before it was asked to be");
      }
    }
  }

  private static void whatCouldNotBeDeliveredWaits() throws Exception {
    try (Round round = new Round(503, 503, 204)) {
      NotSent first = fails(NotSent.class, "cannot be reached now", () -> round.hasty().submit(Value.of(7)));
      isTrue(first.again() && first.status() == 503, "again");
      fails(NotSent.class, "cannot be reached now", () -> round.hasty().submit(Value.of(8)));
      Client.Receipt receipt = round.client().submit(Value.of(9));
      isTrue(!receipt.fresh() && receipt.sentence().contains("The value given now was not used"), receipt.sentence());
      isEqual(round.shuffler.posts.size(), 3);
      isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
    }
  }

  private static void refusalsAreSentences() throws Exception {
    Map<Integer, String> sentences = Map.of(
        410, "not known", 422, "could not open", 404, "refused the report \\(404\\)", 409, "used for another", 200, "\\(200\\)");
    for (Map.Entry<Integer, String> each : sentences.entrySet()) {
      try (Round round = new Round(each.getKey())) {
        NotSent raised = fails(NotSent.class, each.getValue(), () -> round.client().submit(Value.of(7)));
        isTrue(!raised.again() && raised.status() == each.getKey(), raised.getMessage());
        isEqual(round.shuffler.posts.size(), 1);
        fails(NotSent.class, each.getValue(), () -> round.client().submit(Value.of(8)));
        isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
      }
    }
  }

  private static void anotherTicketSealsTheSameBoxes() throws Exception {
    try (Round round = new Round(withTickets(), 403, 204)) {
      Client client = round.client();
      fails(NotSent.class, "A ticket is 32", () -> client.submit(Value.of(7), "no ticket"));
      isEqual(round.kept(), List.of());
      NotSent raised = fails(NotSent.class, "does not know this ticket", () -> client.submit(Value.of(7), TICKET));
      isTrue(raised.again() && raised.status() == 403, raised.getMessage());
      byte[] boxes = client.entry().boxes();
      client.changeTicket(" " + "AB".repeat(16) + "\n");
      isTrue(Arrays.equals(client.entry().boxes(), boxes), "the boxes were changed");
      client.send();
      isEqual(new HashSet<>(round.shuffler.posts).size(), 2);
      fails(NotSent.class, "No report waits for a ticket", () -> client.changeTicket(TICKET));
    }
  }

  private static void onlyRefusedReportsChangeTheirTicket() throws Exception {
    try (Round round = new Round(withTickets(), 503)) {
      fails(NotSent.class, "cannot be reached", () -> round.hasty().submit(Value.of(7), TICKET));
      fails(NotSent.class, "No report waits", () -> round.client().changeTicket("22".repeat(16)));
    }
  }

  private static void onePersonReportsOnceInATaskAndRound() throws Exception {
    try (Round round = new Round(204)) {
      round.client().submit(Value.of(7));
      Callable<Collection> another = () -> {
        byte[] bytes = served(round.shuffler.url(), Map.of());
        return Collection.read(bytes, Bytes.hexOf(Bytes.sha256(bytes)));
      };
      Collection other = another.call();
      fails(NotSent.class, "another collection of the same question", () -> new Client(other, round.options()).submit(Value.of(7)));
      new Client(other, round.options().user("somebody else")).submit(Value.of(7));
      byte[] next = served(round.shuffler.url(), Map.of("round", 2));
      new Client(Collection.read(next, Bytes.hexOf(Bytes.sha256(next))), round.options()).submit(Value.of(7));
      for (int value : new int[] {99, 7}) {
        NotSent raised = fails(NotSent.class, "^Nothing was sent now: .* was stored on 20.*`user`", () -> round.client().submit(Value.of(value)));
        isTrue(!raised.again(), "again");
      }
      isEqual(round.shuffler.posts.size(), 3);
    }
  }

  private static void nothingIsDrawnForACollectionThatTakesNoReports() throws Exception {
    try (Round round = new Round(204)) {
      for (String phase : List.of("not open yet", "closed", "aborted", "gone")) {
        round.shuffler.state = "{\"phase\": \"" + phase + "\", \"reason\": \"too few\"}";
        fails(NotSent.class, "is " + phase + " \\(too few\\)\\. Nothing is drawn", () -> round.client().prepare(Value.of(7), "", untouched()));
      }
      round.shuffler.state = null;
      fails(NotSent.class, "is gone\\.", () -> round.client().prepare(Value.of(7), "", untouched()));
      for (String state : List.of("{\"phase\": \"something else\", \"reason\": \"\"}", "{", "[]", "{\"phase\": 1}")) {
        round.shuffler.state = state;
        NotSent raised = fails(NotSent.class, "cannot be asked", () -> round.client().prepare(Value.of(7), "", untouched()));
        isTrue(raised.again(), "again");
      }
      round.shuffler.close();
      fails(NotSent.class, "cannot be asked", () -> round.client().prepare(Value.of(7), "", untouched()));
      isEqual(round.kept(), List.of());
    }
  }

  private static void aCollectionThatCannotBeFollowedSaysWhy() throws Exception {
    Map<String, Object> recipe = Map.of("protocol", "sums", "browser", false, "why", "Too much.");
    try (Round round = new Round(Map.of("recipe", recipe), 204)) {
      fails(NotSent.class, "cannot be joined from here\\. Too much\\.", () -> round.client().submit(Value.of(1)));
    }
    Map<String, Object> unknown = new HashMap<>(numbers.members());
    unknown.put("protocol", "new");
    try (Round round = new Round(Map.of("recipe", unknown), 204)) {
      fails(CollectionError.class, "use a newer one", () -> round.client().submit(Value.of(1)));
      isEqual(round.kept(), List.of());
    }
    Map<String, Object> damaged = new HashMap<>(numbers.members());
    damaged.remove("noise");
    try (Round round = new Round(Map.of("recipe", damaged), 204)) {
      fails(CollectionError.class, "recipe of this collection is invalid", () -> round.client().submit(Value.of(1)));
      isEqual(round.kept(), List.of());
    }
  }

  private static void whatWasDeclinedIsNotSent() throws Exception {
    try (Round round = new Round(204)) {
      isEqual(round.client().prepare(Value.of(7), "").payloads().size(), 10);
      isTrue(round.client().prepare(Value.of(7), "", untouched()) == null, "it was made twice");
      isTrue(round.client().decline() && round.client().decline(), "nothing was sent");
      fails(NotSent.class, "declined on .*: nothing was sent", () -> round.client().submit(Value.of(7)));
      fails(NotSent.class, "declined on .*: nothing was sent", () -> round.client().send());
      Client nobody = round.client(round.options().user("nobody"));
      fails(NotSent.class, "no report to be sent", nobody::send);
      isTrue(nobody.decline(), "nothing was sent");
      fails(NotSent.class, "declined on", () -> nobody.submit(Value.of(7)));
      isEqual(round.shuffler.posts.size(), 0);
      Client sender = round.client(round.options().user("sender"));
      sender.submit(Value.of(7));
      fails(NotSent.class, "sent already", sender::decline);
    }
  }

  private static void declinedWhileItIsSent() throws Exception {
    try (Round round = new Round(503, 204)) {
      HttpTransport http = new HttpTransport();
      Options options = round.options().transport((address, body, largest) -> {
        Transport.Answer answer = http.ask(address, body, largest);
        if (body != null) isTrue(!round.client().decline(), "it may have been sent");
        return answer;
      });
      NotSent raised = fails(NotSent.class, "may have been sent before that, and is not sent again", () -> round.client(options).submit(Value.of(7)));
      isTrue(!raised.again(), "again");
      isEqual(round.shuffler.posts.size(), 1);
      isTrue(!round.client().decline(), "it may have been sent");
      isTrue(round.kept().stream().allMatch(entry -> entry.report() == null), "a report was kept");
    }
  }

  private static void anAnswerAfterItWasDeclinedIsTheTruth() throws Exception {
    try (Round round = new Round(204)) {
      HttpTransport http = new HttpTransport();
      round.client(round.options().transport((address, body, largest) -> {
        Transport.Answer answer = http.ask(address, body, largest);
        if (body != null) round.client().decline();
        return answer;
      })).submit(Value.of(7));
      isEqual(round.client().entry().state(), Entry.State.SENT);
      fails(NotSent.class, "sent already", () -> round.client().decline());
    }
  }

  private static void declinedWhileItWaitsForItsMoment() throws Exception {
    try (Round round = new Round(Map.of("delay", 2), 204)) {
      round.client().prepare(Value.of(7), "", new Words(() -> 0xaaaaaaaaaaaaaaaaL)); // 2/3 of the delay
      ExecutorService aside = Executors.newSingleThreadExecutor();
      Future<NotSent> told = aside.submit(() -> fails(NotSent.class, "nothing was sent\\.", () -> round.client().send()));
      Thread.sleep(200);
      isTrue(round.client().decline(), "nothing was sent");
      told.get();
      aside.shutdown();
      isEqual(round.shuffler.posts.size(), 0);
    }
  }

  private static void aRandomDelayIsKept() throws Exception {
    try (Round round = new Round(Map.of("delay", 3600), 204)) {
      Set<Long> seconds = new HashSet<>();
      for (int person = 0; person < 8; person++) {
        Client client = round.client(round.options().user("" + person));
        client.prepare(Value.of(7), "");
        long wait = client.entry().due() - System.currentTimeMillis();
        isTrue(wait > -5000 && wait <= 3_600_000, "" + wait);
        seconds.add(wait / 1000);
      }
      isTrue(seconds.size() > 5, seconds.toString());
    }
  }

  private static void ofManyAtOnceOneIsFirst() throws Exception {
    try (Round round = new Round(204)) {
      ExecutorService aside = Executors.newFixedThreadPool(8);
      List<Future<Boolean>> told = new ArrayList<>();
      for (int person = 0; person < 16; person++) {
        int value = person;
        told.add(aside.submit(() -> {
          try {
            return round.client().submit(Value.of(value)).fresh();
          } catch (NotSent stored) {
            isTrue(stored.getMessage().startsWith("Nothing was sent now"), stored.getMessage());
            return false;
          }
        }));
      }
      int fresh = 0;
      for (Future<Boolean> each : told) fresh += each.get() ? 1 : 0;
      aside.shutdown();
      isEqual(fresh, 1);
      isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
    }
  }

  private static void noChangeOfAnOutboxIsLost() throws Exception {
    Path folder = Files.createTempDirectory(scratch, "changes").resolve("outbox");
    List<Process> processes = new ArrayList<>();
    for (int process = 0; process < 3; process++) {
      processes.add(java("ClientChecks", "count", folder.toString()).inheritIO().start());
    }
    for (Process process : processes) isEqual(process.waitFor(), 0);
    isEqual(new FolderOutbox(folder).update("key", entry -> null).refused(), 3 * CHANGES);
  }

  /** Changes an entry many times, by several threads. */
  private static void count(Path folder) throws Exception {
    Entry none = new Entry("c", Entry.State.MADE, new byte[1], null, 0, 1, 0, false, null);
    ExecutorService aside = Executors.newFixedThreadPool(4);
    List<Future<?>> changes = new ArrayList<>();
    for (int change = 0; change < CHANGES; change++) {
      changes.add(aside.submit(() -> new FolderOutbox(folder).update("key",
          entry -> entry == null ? none.with(none.report(), 1) : entry.with(entry.report(), entry.refused() + 1))));
    }
    aside.shutdown();
    for (Future<?> change : changes) change.get();
  }

  private static void anEntryThatCannotBeReadStopsEverything() throws Exception {
    try (Round round = new Round(204)) {
      round.client().prepare(Value.of(7), "");
      Path file;
      try (Stream<Path> files = Files.list(round.folder)) {
        file = files.filter(each -> each.toString().endsWith(".json")).findFirst().orElseThrow();
      }
      String text = Files.readString(file);
      for (String damaged : List.of("", text.substring(0, 40), text.replace("\"made\"", "\"waiting\""))) {
        Files.writeString(file, damaged);
        fails(IOException.class, "cannot be read; nothing is drawn", () -> round.client().submit(Value.of(7)));
      }
      Files.writeString(file, text);
      Files.createFile(file.resolveSibling(file.getFileName() + ".1"));
      fails(IOException.class, "by the client for Node", () -> round.client().submit(Value.of(7)));
      isEqual(round.shuffler.posts.size(), 0);
    }
  }

  private static void aKilledProcessLeavesItsReportWhole() throws Exception {
    try (Round round = new Round(503, 503, 503, 204)) {
      Path file = round.folder.resolveSibling("collection.json");
      Files.write(file, Bytes.joined(round.served, new byte[] {'\n'}));
      for (int kill = 1; kill <= 3; kill++) {
        Process process = command(file, "7").redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        for (int wait = 0; round.shuffler.posts.size() < kill && wait < 1200; wait++) Thread.sleep(25);
        process.destroyForcibly().waitFor();
        isEqual(round.shuffler.posts.size(), kill);
      }
      isTrue(!round.client().submit(Value.of(8)).fresh(), "it was made again");
      isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
      isEqual(round.kept().size(), 1);
    }
  }

  private static void ofSeveralProcessesOneIsFirst() throws Exception {
    try (Round round = new Round(204)) {
      Path file = round.folder.resolveSibling("collection.json");
      Files.write(file, round.served);
      List<Process> processes = new ArrayList<>();
      for (int person = 0; person < 3; person++) processes.add(command(file, "" + person).start());
      int fresh = 0;
      for (Process process : processes) {
        String lines = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        process.waitFor();
        isTrue(lines.contains("is stored.") || lines.contains("Nothing was sent now"), lines);
        fresh += lines.contains("\nThe report is stored.") ? 1 : 0;
      }
      isEqual(fresh, 1);
      isEqual(new HashSet<>(round.shuffler.posts).size(), 1);
      isEqual(round.kept().size(), 1);
    }
  }

  private static ProcessBuilder command(Path collection, String value) {
    return java("Main", collection.toString(), value).redirectErrorStream(true);
  }

  /** Another process that runs a class. */
  private static ProcessBuilder java(String name, String... arguments) {
    List<String> words = new ArrayList<>();
    words.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    words.addAll(List.of("-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path")));
    words.add("metricshuffle.client." + name);
    words.addAll(List.of(arguments));
    return new ProcessBuilder(words);
  }

  private static void whatAKilledProcessLeftIsWrittenOver() throws Exception {
    try (Round round = new Round(204)) {
      round.client().prepare(Value.of(7), "");
      Path file;
      try (Stream<Path> files = Files.list(round.folder)) {
        file = files.filter(each -> each.toString().endsWith(".json")).findFirst().orElseThrow();
      }
      Files.move(file, file.resolveSibling(file.getFileName() + ".new")); // killed right before it was moved
      isTrue(round.client().entry() == null, "what is not whole counts");
      isTrue(round.client().submit(Value.of(8)).fresh(), "nothing was made");
      isEqual(round.kept().size(), 1);
    }
  }

  private static void aSlowAnswerIsCutOff() throws Exception {
    try (Round round = new Round(204)) {
      round.shuffler.state = " ".repeat(200);
      round.shuffler.pause = 50;
      HttpTransport hasty = new HttpTransport(Duration.ofSeconds(1));
      long begun = System.nanoTime();
      Client client = round.client(round.options().transport(hasty));
      fails(NotSent.class, "cannot be asked", () -> client.prepare(Value.of(7), "", untouched()));
      isTrue(System.nanoTime() - begun < 8_000_000_000L, "it waited for a slow answer");
    }
  }

  private static void whatIsTypedBecomesAValue() {
    Json label = Json.read("{\"kind\": \"label\"}");
    Json number = Json.read("{\"kind\": \"number\"}");
    Json group = Json.read("{\"kind\": \"group\"}");
    Json map = Json.read("{\"kind\": \"place\", \"box\": []}");
    Json grid = Json.read("{\"kind\": \"place\", \"box\": null}");
    Json items = Json.read("{\"kind\": \"items\", \"of\": {\"kind\": \"number\"}}");
    Json row = Json.read("{\"kind\": \"row\", \"number\": {\"kind\": \"number\"}}");
    Json set = Json.read("{\"kind\": \"set\", \"label\": {\"kind\": \"label\"}}");
    Json keys = Json.read("{\"kind\": \"keys\"}");
    Json trip = Json.read("{\"kind\": \"trip\"}");
    isEqual(Main.valueOf(row, List.of("1", "-2.5")), new Value.Items(List.of(Value.of(1), Value.of(-2.5))));
    isEqual(Main.valueOf(set, List.of("a,b", "c")), new Value.Items(List.of(Value.of("a,b"), Value.of("c"))));
    isEqual(Main.valueOf(set, List.of("")), new Value.Items(List.of()));
    isEqual(Main.valueOf(keys, List.of("a,b,3")), new Value.Items(List.of(new Value.LabelledNumber("a,b", 3))));
    isEqual(Main.valueOf(keys, List.of("")), new Value.Items(List.of()));
    isEqual(Main.valueOf(trip, List.of("x,1", "y")), new Value.Trip("x,1", "y"));
    fails(ValueError.class, "where the trip starts", () -> Main.valueOf(trip, List.of("x,y")));
    fails(ValueError.class, "a comma between", () -> Main.valueOf(keys, List.of("a")));
    isEqual(Main.valueOf(label, List.of("-5, --user")), Value.of("-5, --user"));
    isEqual(Main.valueOf(number, List.of("-5e1")), Value.of(-50));
    isEqual(Main.valueOf(group, List.of("a,b, 3")), new Value.LabelledNumber("a,b", 3));
    isEqual(Main.valueOf(map, List.of("46.95,-7.5")), new Value.Place(46.95, -7.5));
    isEqual(Main.valueOf(grid, List.of("4,0")), new Value.Cell(4, 0));
    isEqual(Main.valueOf(items, List.of("4", "5")), new Value.Items(List.of(Value.of(4), Value.of(5))));
    for (String text : List.of("7d", "0x7", "NaN", "Infinity", "", "1,5", "1_0")) {
      fails(ValueError.class, "Enter a number", () -> Main.valueOf(number, List.of(text)));
    }
    fails(ValueError.class, "Enter one value", () -> Main.valueOf(number, List.of("4", "5")));
    fails(ValueError.class, "a column and a row", () -> Main.valueOf(grid, List.of("4.5,0")));
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("count")) {
      count(Path.of(arguments[1]));
      return;
    }
    Json vectors = Json.read(Files.readAllBytes(Path.of(arguments[0])));
    numbers = vectors.get("reports").get("whole numbers").get("recipe");
    scratch = Path.of(arguments[1]);
    Map<String, Check> checks = new LinkedHashMap<>();
    checks.put("one report is sent", ClientChecks::oneReportIsSent);
    checks.put("values that are not asked for are refused, and nothing is kept", ClientChecks::valuesThatAreNotAskedForAreRefused);
    checks.put("records and trips that are not asked for are refused", ClientChecks::recordsThatAreNotAskedForAreRefused);
    checks.put("the same bytes are sent until they are stored", ClientChecks::theSameBytesAreSentUntilTheyAreStored);
    checks.put("Retry-After is never cut short", ClientChecks::retryAfterIsNeverCutShort);
    checks.put("what could not be delivered waits, and is not randomized again", ClientChecks::whatCouldNotBeDeliveredWaits);
    checks.put("refusals are sentences, and send no other bytes", ClientChecks::refusalsAreSentences);
    checks.put("another ticket seals the same boxes again", ClientChecks::anotherTicketSealsTheSameBoxes);
    checks.put("only refused reports change their ticket", ClientChecks::onlyRefusedReportsChangeTheirTicket);
    checks.put("one person reports once in a task and round", ClientChecks::onePersonReportsOnceInATaskAndRound);
    checks.put("nothing is drawn for a collection that takes no reports", ClientChecks::nothingIsDrawnForACollectionThatTakesNoReports);
    checks.put("a collection that cannot be followed says why", ClientChecks::aCollectionThatCannotBeFollowedSaysWhy);
    checks.put("what was declined is not sent, and no second report is drawn", ClientChecks::whatWasDeclinedIsNotSent);
    checks.put("declined while it is sent: it is not sent again", ClientChecks::declinedWhileItIsSent);
    checks.put("an answer that comes after it was declined is the truth", ClientChecks::anAnswerAfterItWasDeclinedIsTheTruth);
    checks.put("declined while it waits for its moment: nothing is sent", ClientChecks::declinedWhileItWaitsForItsMoment);
    checks.put("a random delay is kept to", ClientChecks::aRandomDelayIsKept);
    checks.put("of many at once one is first, and all send its report", ClientChecks::ofManyAtOnceOneIsFirst);
    checks.put("no change of an outbox is lost", ClientChecks::noChangeOfAnOutboxIsLost);
    checks.put("an entry that cannot be read stops everything", ClientChecks::anEntryThatCannotBeReadStopsEverything);
    checks.put("a process that is killed leaves its report whole", ClientChecks::aKilledProcessLeavesItsReportWhole);
    checks.put("of several processes one is first", ClientChecks::ofSeveralProcessesOneIsFirst);
    checks.put("what a killed process left is written over", ClientChecks::whatAKilledProcessLeftIsWrittenOver);
    checks.put("a slow answer is cut off", ClientChecks::aSlowAnswerIsCutOff);
    checks.put("what is typed becomes a value", ClientChecks::whatIsTypedBecomesAValue);
    int failed = 0;
    for (Map.Entry<String, Check> check : checks.entrySet()) {
      try {
        check.getValue().run();
        System.out.println("ok " + check.getKey());
      } catch (Throwable raised) {
        failed++;
        System.out.println("failed " + check.getKey());
        raised.printStackTrace(System.out);
      }
    }
    System.exit(failed == 0 ? 0 : 1);
  }
}
