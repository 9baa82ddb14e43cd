package metricshuffle.client;

import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * What an outbox holds of one person in one round of a task. It is written as the JavaScript client writes it in Node.
 *
 * @param collection the digest of the collection that it was made for
 * @param report sealed for the first shuffler; null once it was sent or declined
 * @param boxes the boxes inside, where there is a ticket: with another ticket they are sealed anew, and not randomized anew
 * @param due not to be sent before then, in milliseconds since 1970
 * @param at since when it is in this state, in milliseconds since 1970
 * @param refused the status by which the shuffler refused this very report; 0 if it did not
 * @param tried declined when it may have been sent
 * @param spent what the report reveals; null if none was made, or an earlier version of this client made it
 */
public record Entry(
    String collection,
    State state,
    byte[] report,
    byte[] boxes,
    long due,
    long at,
    int refused,
    boolean tried,
    Spent spent) {
  /** MADE: nothing of it has left this device; SENDING: it may have; SENT: the shuffler said that it is stored. */
  public enum State {
    MADE,
    SENDING,
    SENT,
    DECLINED
  }

  /** In another state from now on; nothing is kept of what was sent or declined. */
  Entry in(State next, boolean mayHaveBeenSent) {
    boolean keeps = next == State.MADE || next == State.SENDING;
    long now = System.currentTimeMillis();
    byte[] sealed = keeps ? report : null;
    byte[] inside = keeps ? boxes : null;
    return new Entry(collection, next, sealed, inside, keeps ? due : 0, now, refused, mayHaveBeenSent, spent);
  }

  /** Whether a report was made of which nobody stored what it reveals. */
  boolean isUnaccounted() {
    return spent == null && (state != State.DECLINED || tried);
  }

  /** With this report, and refused by this status. */
  Entry with(byte[] other, int status) {
    return new Entry(collection, state, other, boxes, due, at, status, tried, spent);
  }

  String write() {
    Map<String, Object> members = new LinkedHashMap<>();
    members.put("collection", collection);
    members.put("state", state.name().toLowerCase(Locale.ROOT));
    members.put("report", text(report));
    members.put("boxes", text(boxes));
    members.put("due", due);
    members.put("at", at);
    if (refused != 0) members.put("refused", refused);
    if (tried) members.put("tried", true);
    if (spent != null) members.put("spent", spent.members());
    return Json.write(members);
  }

  static Entry read(String text) {
    Json members = Json.read(text);
    return new Entry(
        members.get("collection").text(),
        State.valueOf(members.get("state").text().toUpperCase(Locale.ROOT)),
        bytes(members.get("report")),
        bytes(members.get("boxes")),
        members.get("due").whole(),
        members.get("at").whole(),
        members.has("refused") ? members.get("refused").count() : 0,
        members.has("tried") && members.get("tried").flag(),
        members.has("spent") ? Spent.read(members.get("spent")) : null);
  }

  private static String text(byte[] bytes) {
    return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
  }

  private static byte[] bytes(Json text) {
    return text.isNull() ? null : Base64.getDecoder().decode(text.text());
  }
}
