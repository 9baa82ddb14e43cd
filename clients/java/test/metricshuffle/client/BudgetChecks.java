package metricshuffle.client;

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** {@code BudgetChecks VECTORS.json FOLDER}: what reports reveal is stored in one write with them, and added up within a unit only. */
final class BudgetChecks {
  private static Json recipe;
  private static Path scratch;

  private BudgetChecks() {}

  private static void isEqual(Object seen, Object expected) {
    if (!expected.equals(seen)) throw new AssertionError(seen + "\nis not\n" + expected);
  }

  private static Map<String, Object> guarantee(Double epsilon, double delta, double distance, String unit, String shape) {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("epsilon", epsilon);
    members.put("delta", delta);
    members.put("distance", distance);
    members.put("unit", unit);
    members.put("shape", shape);
    members.put("protects", "one person");
    members.put("between", "values");
    return members;
  }

  private static Collection collection(String task, int round, int rounds, Object shuffled, Object local) throws Exception {
    List<String> keys = new ArrayList<>();
    for (int party = 0; party < 2; party++) {
      byte[] encoded = KeyPairGenerator.getInstance("X25519").generateKeyPair().getPublic().getEncoded();
      keys.add(Bytes.hexOf(Arrays.copyOfRange(encoded, encoded.length - 32, encoded.length)));
    }
    Map<String, Object> stated = new LinkedHashMap<>();
    stated.put("digest", task.repeat(64));
    stated.put("rounds", rounds);
    stated.put("guarantee", shuffled);
    stated.put("if_shuffler_colludes", local);
    Map<String, Object> terms = new LinkedHashMap<>();
    terms.put("format", "metricshuffle-collection/1");
    terms.put("suite", "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM");
    terms.put("task", Json.write(stated));
    terms.put("recipe", recipe);
    terms.put("round", round);
    terms.put("messages", 10);
    terms.put("payload", 9);
    terms.put("ticket", 0);
    terms.put("hops", List.of(Map.of("key", keys.get(1), "name", "", "url", "http://127.0.0.1:1")));
    terms.put("analyst", Map.of("key", keys.get(0), "name", "Bo"));
    terms.put("opens", "2020-01-01T00:00:00Z");
    terms.put("closes", "2090-01-01T00:00:00Z");
    terms.put("extends", "2090-01-01T00:00:00Z");
    terms.put("delay", 0);
    terms.put("admission", "open");
    terms.put("minimum", 1);
    terms.put("maximum", 100);
    byte[] served = Json.write(terms).getBytes("UTF-8");
    return Collection.read(served, Bytes.hexOf(Bytes.sha256(served)));
  }

  private static final Transport OPEN =
      (url, body, longest) -> new Transport.Answer(200, "", "{\"phase\": \"open\", \"reason\": \"\"}".getBytes());

  private static Client client(Path outbox, Collection collection, String user) {
    return new Client(collection, Options.in(outbox).user(user).transport(OPEN));
  }

  private static List<String> lines(Path outbox, String user) throws Exception {
    List<String> lines = new ArrayList<>();
    for (String line : Budget.sentences(new FolderOutbox(outbox).entries(), List.of(), user)) {
      lines.add(line.strip().replaceAll("^[0-9]{4}-[0-9]{2}-[0-9]{2} ", "DAY "));
    }
    return lines;
  }

  private static Path file(Path outbox, String suffix) throws Exception {
    try (Stream<Path> files = Files.list(outbox)) {
      return files.filter(each -> each.toString().endsWith(suffix)).findFirst().orElseThrow();
    }
  }

  private static final String ELSEWHERE = "Reports made with other folders, or on other devices, are not known here.";
  private static final String CLAIMED = "What your reports can reveal, as their tasks state it; nothing of it is verified here.";

  /** Two units are two sums; a shorter move costs less where the guarantee is linear; three rounds of a task count once, and a fourth again. */
  private static void sums() throws Exception {
    Path outbox = scratch.resolve("sums");
    isEqual(lines(outbox, ""), List.of("No report was made here.", ELSEWHERE));
    Object linear = guarantee(1.0, 1e-6, 10.0, "kcal", "linear");
    Object flat = guarantee(0.1, 2e-6, 5.0, "kcal", "flat");
    Object local = guarantee(3.0, 0, 10.0, "kcal", "flat");
    for (int round = 1; round <= 4; round++) {
      client(outbox, collection("a", round, 3, linear, local), "").prepare(Value.of(7), "");
    }
    client(outbox, collection("b", 1, 1, flat, guarantee(0.2, 0, 5.0, "kcal", "flat")), "").prepare(Value.of(7), "");
    client(outbox, collection("c", 1, 1, guarantee(2.0, 0, 3.0, "h", "linear"), guarantee(null, 0, 3.0, "h", "flat")), "")
        .prepare(Value.of(7), "");
    Client other = client(outbox, collection("d", 1, 1, null, null), "Ada");
    other.prepare(Value.of(7), "");
    other.decline();
    String bo = ", asked by Bo.";
    isEqual(
        lines(outbox, ""),
        List.of(
            CLAIMED, "",
            "Moves between values up to 3 h:",
            "no limit, even if every shuffler or adder colludes with the analysts;",
            "epsilon 2, if the shufflers or adders are honest.",
            "DAY made, not sent yet: round 1 of task cccccccc" + bo, "",
            "Moves between values up to 5 kcal:",
            "epsilon 6.2, even if every shuffler or adder colludes with the analysts;",
            "epsilon 1.1, delta 0.000004, if the shufflers or adders are honest.",
            "DAY made, not sent yet: round 1 of task aaaaaaaa" + bo,
            "DAY made, not sent yet: round 2 of task aaaaaaaa" + bo,
            "DAY made, not sent yet: round 3 of task aaaaaaaa" + bo,
            "DAY made, not sent yet: round 4 of task aaaaaaaa" + bo,
            "DAY made, not sent yet: round 1 of task bbbbbbbb" + bo, ELSEWHERE));
    isEqual(
        lines(outbox, "Ada"),
        List.of(
            CLAIMED, "",
            "Moves of any length (task dddddddd):",
            "no limit, even if every shuffler or adder colludes with the analysts;",
            "no limit, if the shufflers or adders are honest.",
            "DAY declined before it was sent, and counted: round 1 of task dddddddd" + bo, ELSEWHERE));
  }

  /** Killed before the one write that stores report and budget: neither is there. Then made again: there once. */
  private static void kills() throws Exception {
    Path outbox = scratch.resolve("kills");
    Object linear = guarantee(1.0, 0, 10.0, "kcal", "linear");
    Collection asked = collection("a", 1, 1, linear, linear);
    client(outbox, asked, "").prepare(Value.of(7), "");
    Path entry = file(outbox, ".json");
    List<String> once = lines(outbox, "");
    isEqual(once.size(), 7);
    Files.move(entry, entry.resolveSibling(entry.getFileName() + ".new"));
    isEqual(lines(outbox, ""), List.of("No report was made here.", ELSEWHERE));
    isEqual(client(outbox, asked, "").entry() == null, true);
    client(outbox, asked, "").prepare(Value.of(8), "");
    isEqual(lines(outbox, ""), once);
    String text = Files.readString(entry);
    isEqual(Entry.read(text).write(), text);
    String older = text.replaceAll(",\"spent\":\\{.*\\}\\}$", "}");
    isEqual(older.contains("spent"), false);
    String future = text.replaceAll("\"day\":\"[0-9-]+\"", "\"day\":\"2999-01-01\"");
    Files.writeString(entry, future);
    isEqual(lines(outbox, "").contains("The clock of this device is behind the newest entry (2999-01-01)."), true);
    Files.writeString(entry, older);
    String uncounted = "1 report(s) of an earlier version of this client, or of somebody else's, are not counted.";
    isEqual(lines(outbox, ""), List.of("No report was made here.", uncounted, ELSEWHERE));
  }

  private static String over(Client client) throws Exception {
    try {
      client.prepare(Value.of(7), "");
      return "";
    } catch (OverLimit refused) {
      return refused.getMessage();
    }
  }

  /** Nothing is made over a limit without a yes; limits are of a person and of a unit, and are replaced and removed. */
  private static void limits() throws Exception {
    Path outbox = scratch.resolve("limits");
    FolderOutbox folder = new FolderOutbox(outbox);
    Object local = guarantee(3.0, 0, 10.0, "kcal", "flat");
    Object shuffled = guarantee(0.1, 0, 10.0, "kcal", "linear");
    folder.setLimit("", Limit.parse("3 at  10 kcal in 30 days"));
    folder.setLimit("Ada", Limit.parse("1 at 1 kcal in 1d"));
    client(outbox, collection("a", 1, 1, shuffled, local), "").prepare(Value.of(7), "");
    String told = over(client(outbox, collection("b", 1, 1, shuffled, local), ""));
    isEqual(
        told,
        "With this report, those of 30 days sum up to epsilon 6, even if every shuffler or adder colludes with the analysts (and to epsilon 0.2, if"
            + " the shufflers or adders are honest), for moves of 10 kcal; your limit is 3 at 10 kcal in 30d. Nothing was made or sent.");
    isEqual(folder.entries().size(), 1);
    isEqual(over(client(outbox, collection("c", 1, 1, guarantee(0.1, 0, 1.0, "h", "flat"), local), "")).contains("none for moves in h"), true);
    folder.setLimit("", Limit.parse("none at 10 kcal in 30d"));
    folder.setLimit("", Limit.parse("0.15 at 5 kcal in 30d if honest"));
    isEqual(folder.limits("").toString(), "[0.15 at 5 kcal in 30d if honest]");
    isEqual(over(client(outbox, collection("b", 1, 1, shuffled, local), "")), "");
    isEqual(over(client(outbox, collection("d", 1, 1, shuffled, local), "")), "");
    isEqual(over(client(outbox, collection("e", 1, 1, shuffled, local), "")).contains("sum up to epsilon 0.2, if the"), true);
    Options agreed = Options.in(outbox).transport(OPEN).overLimit(true);
    isEqual(over(new Client(collection("e", 1, 1, shuffled, local), agreed)), "");
    isEqual(over(client(outbox, collection("f", 1, 1, shuffled, local), "Bob")), "");
    folder.setLimit("", Limit.parse("9 at 11 kcal in 1d"));
    isEqual(over(client(outbox, collection("f", 1, 1, shuffled, local), "")).contains("sum up to no limit"), true);
    for (String wrong : List.of("", "3", "3 at 0 kcal in 3d", "-1 at 1 in 3d", "3 at 1 kcal in 0d")) {
      try {
        throw new AssertionError(Limit.parse(wrong));
      } catch (IllegalArgumentException refused) {
        isEqual(refused.getMessage().contains("3 at 100 kcal in 30d"), true);
      }
    }
  }

  public static void main(String[] arguments) throws Exception {
    recipe = Json.read(Files.readAllBytes(Path.of(arguments[0]))).get("reports").get("whole numbers").get("recipe");
    scratch = Path.of(arguments[1]);
    sums();
    System.out.println("ok sums");
    kills();
    System.out.println("ok kills");
    limits();
    System.out.println("ok limits");
  }
}
