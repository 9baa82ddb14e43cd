package metricshuffle.client;

import java.time.Instant;
import java.time.ZoneOffset;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A line of the budget of a person: what a report can reveal, as its task states it. It is stored in the entry of the outbox, in one write
 * with the sealed report, and stays there whatever becomes of the report.
 *
 * @param user whose report it is, where several people share an outbox
 * @param task the digest of the task
 * @param unit of distances; empty if the task has none
 * @param moves what is moved: between which places, and whether a person's value or their items
 * @param rounds how many rounds of the task the two losses cover together
 * @param local even if every shuffler colludes with the analyst
 * @param shuffled if the shufflers are honest
 * @param honest how many honest reports {@code shuffled} counts on; 0 if on none, or none is stated
 * @param day on which the report was made, in UTC
 */
public record Spent(
    String user,
    String task,
    String analyst,
    long round,
    String unit,
    String moves,
    long rounds,
    Loss local,
    Loss shuffled,
    long honest,
    String day) {
  private static final String ITEMS = "one user's items";

  /**
   * Epsilon and delta for moves up to a distance.
   *
   * @param epsilon infinity if there is no limit, or none is stated
   * @param distance 0 if none is stated
   * @param isLinear whether a shorter move has a proportionally smaller epsilon
   */
  public record Loss(double epsilon, double delta, double distance, boolean isLinear) {
    /** Of a guarantee in a task; without a limit where a number is not there. */
    private static Loss of(Json guarantee) {
      double epsilon = number(guarantee, "epsilon", Double.POSITIVE_INFINITY);
      double delta = number(guarantee, "delta", 1);
      return new Loss(epsilon, delta, number(guarantee, "distance", 0), text(guarantee, "shape").equals("linear"));
    }

    private static double number(Json object, String name, double otherwise) {
      boolean isThere = object != null && object.isObject() && object.has(name) && object.get(name).isNumber();
      double number = isThere ? object.get(name).number() : otherwise;
      return number >= 0 ? number : otherwise;
    }

    private Map<String, Object> members() {
      Map<String, Object> members = new LinkedHashMap<>();
      members.put("epsilon", Double.isFinite(epsilon) ? epsilon : null); // JSON has no infinity
      members.put("delta", delta);
      members.put("distance", distance);
      members.put("shape", isLinear ? "linear" : "flat");
      return members;
    }
  }

  /** What a report that is made now spends, by the task that is asked. */
  static Spent of(Collection collection, String user) {
    Json task = collection.stated();
    Json guarantee = task.has("guarantee") && task.get("guarantee").isObject() ? task.get("guarantee") : null;
    boolean isOfItems = text(guarantee, "protects").equals(ITEMS);
    return new Spent(
        user,
        collection.task(),
        collection.analyst(),
        collection.round(),
        text(guarantee, "unit"),
        text(guarantee, "between") + (isOfItems ? " of a person's items" : ""),
        task.has("rounds") && task.get("rounds").isNumber() ? Math.max(1, task.get("rounds").whole()) : 1,
        Loss.of(task.has("if_shuffler_colludes") ? task.get("if_shuffler_colludes") : null),
        Loss.of(guarantee),
        honest(guarantee),
        latest(Instant.now().atZone(ZoneOffset.UTC).toLocalDate().toString(), collection.opens().substring(0, 10)));
  }

  private static long honest(Json guarantee) {
    boolean isThere = guarantee != null && guarantee.has("trust") && guarantee.get("trust").isObject();
    return isThere ? whole(guarantee.get("trust"), "honest_reports") : 0;
  }

  private static long whole(Json object, String name) {
    return object.has(name) && object.get(name).isNumber() ? object.get(name).whole() : 0;
  }

  /** The later of two days: a report was not made before its collection opened, whatever the clock says. */
  private static String latest(String day, String other) {
    return day.compareTo(other) < 0 ? other : day;
  }

  private static String text(Json object, String name) {
    boolean isThere = object != null && object.isObject() && object.has(name) && object.get(name).isText();
    return isThere ? object.get(name).text() : "";
  }

  Map<String, Object> members() {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("user", user);
    members.put("task", task);
    members.put("analyst", analyst);
    members.put("round", round);
    members.put("unit", unit);
    members.put("moves", moves);
    members.put("rounds", rounds);
    members.put("local", local.members());
    members.put("shuffled", shuffled.members());
    members.put("honest", honest == 0 ? null : honest);
    members.put("day", day);
    return members;
  }

  static Spent read(Json members) {
    return new Spent(
        members.get("user").text(),
        members.get("task").text(),
        members.get("analyst").text(),
        members.get("round").whole(),
        members.get("unit").text(),
        members.get("moves").text(),
        members.get("rounds").whole(),
        Loss.of(members.get("local")),
        Loss.of(members.get("shuffled")),
        whole(members, "honest"),
        members.get("day").text());
  }
}
