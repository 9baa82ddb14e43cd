package metricshuffle.client;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;

/** A collection as it is served: its bytes are hashed before anything in them is read. */
public final class Collection {
  private static final String FORMAT = "metricshuffle-collection/";
  private static final String SUITE = "DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM";
  private static final int LARGEST = 4 << 20;
  private static final int TICKET_BYTES = 16;
  private static final int MOST_HOPS = 8;

  private final String digest;
  private final Json terms;
  private final Json task;

  private Collection(String digest, Json terms, Json task) {
    this.digest = digest;
    this.terms = terms;
    this.task = task;
  }

  /** What was served, if these are the bytes whose SHA-256 was pinned. */
  public static Collection read(byte[] served, String digest) {
    if (!Bytes.hexOf(Bytes.sha256(served)).equals(digest)) {
      throw new CollectionError(
          "These are not the bytes of the requested collection: the digests differ. Do not take part.");
    }
    if (served.length > LARGEST) throw tooLong();
    Collection collection;
    String format;
    String known;
    try {
      Json terms = Json.read(served);
      collection = new Collection(digest, terms, Json.read(terms.get("task").text()));
      collection.task();
      format = terms.get("format").text() + terms.get("suite").text();
      known = FORMAT + (collection.piles() > 0 || terms.has("gateway") ? 2 : 1) + SUITE;
    } catch (Json.Unreadable unreadable) {
      throw new CollectionError("This is not a collection: it cannot be read.", unreadable);
    }
    if (!format.equals(known)) {
      throw new CollectionError(
          "This collection is of another kind than this client knows; use a newer one.");
    }
    try {
      collection.check();
    } catch (IllegalArgumentException | ArithmeticException damaged) {
      throw new CollectionError("This collection is invalid; do not take part.", damaged);
    }
    return collection;
  }

  /** Asks a shuffler for it, at an address like https://shuffler.example. */
  public static Collection fetch(String address, String digest, Transport transport)
      throws NotSent {
    URI served = URI.create(address.replaceAll("/+$", "") + "/v1/collections/" + digest);
    Transport.Answer answer;
    try {
      answer = transport.ask(served, null, LARGEST);
    } catch (IOException silent) {
      throw new NotSent(
          "The shuffler at " + address + " cannot be reached now, so nothing was drawn. Try again later.", true);
    }
    if (answer.status() != 200) {
      throw new CollectionError(
          "There is no such collection at " + address + ": it answered " + answer.status() + ".");
    }
    if (answer.body().length > LARGEST) throw tooLong();
    return read(answer.body(), digest);
  }

  private static CollectionError tooLong() {
    return new CollectionError("This is not a collection: it is too long.");
  }

  /** Times must be in order and keys different, and the lengths of what is sealed those of what the recipe makes. */
  private void check() {
    List<Json> hops = terms.get("hops").list();
    String admission = terms.get("admission").text();
    boolean matches = ticket() == 0 ? admission.equals("open") : admission.equals("tickets");
    boolean ordered =
        opens().compareTo(closes()) < 0 && closes().compareTo(terms.get("extends").text()) <= 0;
    boolean limited = terms.get("minimum").whole() <= terms.get("maximum").whole();
    boolean isTicket = ticket() == 0 || ticket() == TICKET_BYTES;
    if (hops.isEmpty() || hops.size() > MOST_HOPS || !isTicket || !matches || !ordered || !limited) {
      throw new Json.Unreadable("its hops, times, limits or tickets do not match");
    }
    if (new HashSet<>(keyDigits()).size() <= hops.size()) {
      throw new Json.Unreadable("two parties have one key");
    }
    sealer();
    String scheme = url().getScheme();
    if (!"https".equals(scheme) && !"http".equals(scheme)) {
      throw new Json.Unreadable("reports can be sent by http and https only");
    }
    title();
    question();
    analyst();
    round();
    delay();
    if (why() != null) return;
    Json payload = recipe().get("payload");
    int messages = Math.multiplyExact(payload.get("piles").count(), payload.get("each").count());
    int numbers = Math.multiplyExact(payload.get("number").count(), payload.get("width").count());
    boolean fits = terms.get("payload").count() == Math.addExact(payload.get("pile").count(), numbers);
    int apart = payload.get("pile").count() > 0 ? 0 : payload.get("piles").count();
    if (terms.get("messages").count() != messages || !fits || piles() != apart) {
      throw new CollectionError(
          "The recipe of this collection does not fit its lengths; do not take part.");
    }
    reportSize();
  }

  /** The SHA-256 of the bytes that were served, in hexadecimal digits. */
  public String digest() {
    return digest;
  }

  /** The digest of the task that it says to be of: what an outbox knows it by, together with the round. */
  public String task() {
    return task.get("digest").text();
  }

  /** The title that the planner wrote; empty without one. */
  public String title() {
    return task.has("title") ? task.get("title").text() : "";
  }

  /** The question that the planner wrote; empty without one. */
  public String question() {
    return task.has("question") ? task.get("question").text() : "";
  }

  /** The task as it is stated: its question and its guarantees, which are not verified here. */
  Json stated() {
    return task;
  }

  public long round() {
    return terms.get("round").whole();
  }

  /** Who asks, as the analyst calls themselves; may be empty. */
  public String analyst() {
    Json analyst = terms.get("analyst");
    return analyst.has("name") ? analyst.get("name").text() : "";
  }

  /** A time like 2030-01-31T12:00:00Z. */
  public String opens() {
    return terms.get("opens").text();
  }

  public String closes() {
    return terms.get("closes").text();
  }

  /** Bytes of a ticket: 16, or 0 where none is asked for. */
  public int ticket() {
    return terms.get("ticket").count();
  }

  /** The last day on which it may take reports. */
  String lastDay() {
    return terms.get("extends").text().substring(0, 10);
  }

  /** Why this client cannot follow the recipe of the collection; null if it can. */
  public String why() {
    return recipe().get("browser").flag() ? null : recipe().get("why").text();
  }

  /** Seconds; a report waits for a random part of them before it is sent. */
  int delay() {
    return terms.get("delay").count();
  }

  /** Piles that are mixed apart, to which shufflers add dummies; 0 if there are none. */
  private int piles() {
    return terms.has("piles") ? terms.get("piles").count() : 0;
  }

  Json recipe() {
    return terms.get("recipe");
  }

  /** The analyst's key, the last shuffler's, and so on to the first's: the order in which a report is sealed. */
  private List<String> keyDigits() {
    List<Json> hops = terms.get("hops").list();
    List<String> keys = new ArrayList<>();
    keys.add(terms.get("analyst").get("key").text());
    for (int hop = hops.size() - 1; hop >= 0; hop--) keys.add(hops.get(hop).get("key").text());
    return keys;
  }

  Sealer sealer() {
    return new Sealer(Bytes.ofHex(digest), keyDigits().stream().map(Bytes::ofHex).toList(), piles());
  }

  /** Where reports are sent. */
  URI url() {
    return URI.create(address("reports"));
  }

  /** Where the state of the collection is asked for. */
  URI state() {
    return URI.create(address("state"));
  }

  private String address(String call) {
    String first = terms.get("hops").list().get(0).get("url").text();
    return first + "/v1/collections/" + digest + "/" + call;
  }

  /** Bytes of a report. */
  int reportSize() {
    int box = Math.addExact(terms.get("payload").count(), Sealer.ADDED * terms.get("hops").list().size());
    return Math.addExact(Math.multiplyExact(terms.get("messages").count(), box), ticket() + Sealer.ADDED);
  }
}
