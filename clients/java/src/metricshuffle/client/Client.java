package metricshuffle.client;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.time.Instant;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.UnaryOperator;

/** Taking part: randomize once, seal, write down, send until it is stored. */
public final class Client {
  private static final long FIRST_PAUSE = 500;
  private static final long LONGEST_PAUSE = 30_000;
  private static final int LARGEST_ANSWER = 1 << 16;
  private static final Set<Integer> LATER = Set.of(408, 425, 429);
  private static final Set<String> PHASES = Set.of("open", "not open yet", "closed", "aborted", "gone");
  private static final Map<Integer, String> REFUSED =
      Map.of(
          403, "The shuffler does not know this ticket: check it and send again. Nothing is randomized again.",
          409, "This ticket was used for another report before, which counts; this one was not stored.",
          422, "The shuffler could not open this report, so it was not stored.");

  private final Collection collection;
  private final Options options;
  private final String key;

  public Client(Collection collection, Options options) {
    this.collection = collection;
    this.options = options;
    this.key = Json.write(List.of(collection.task(), collection.round(), options.user()));
  }

  /** The client of a collection that a shuffler serves, if its bytes have the digest that was pinned. */
  public static Client join(String address, String digest, Options options) throws IOException {
    return new Client(Collection.fetch(address, digest, options.transport()), options);
  }

  public Collection collection() {
    return collection;
  }

  /** What was drawn and sealed, to be shown before it is sent; it is kept nowhere. */
  public record Prepared(List<BigInteger> numbers, List<byte[]> payloads) {}

  /** What became of a value that was submitted. {@code fresh}: a report was made of it; otherwise one that was made before was sent. */
  public record Receipt(boolean fresh, String sentence) {}

  /** Whether a collection takes reports now, as its shuffler says; with a reason, if it was aborted, and what its operator did to the clock. */
  public record Phase(String phase, String reason, List<String> clock) {}

  /** What is in the outbox for this collection, or null; refused if a report was made for another one of the same task and round. */
  public Entry entry() throws IOException {
    return update(entry -> null);
  }

  /** Reads the entry and writes what {@code change} makes of it, with nobody else in between. */
  private Entry update(UnaryOperator<Entry> change) throws IOException {
    Entry entry;
    try {
      entry = options.outbox().update(key, stored -> isMine(stored) ? change.apply(stored) : null);
    } catch (UncheckedIOException unreadable) {
      throw unreadable.getCause();
    }
    if (isMine(entry)) return entry;
    throw new NotSent(
        "A report was made here for another collection of the same question and round; both together would tell more than is promised.",
        false);
  }

  private boolean isMine(Entry entry) {
    return entry == null || entry.collection().equals(collection.digest());
  }

  /** Asks the shuffler whether the collection takes reports. */
  public Phase phase() throws NotSent {
    try {
      Transport.Answer answer = options.transport().ask(collection.state(), null, LARGEST_ANSWER);
      if (answer.status() == 404) return new Phase("gone", "", List.of());
      Json state = Json.read(answer.body());
      String phase = state.get("phase").text();
      List<String> clock = state.has("clock") ? state.get("clock").texts() : List.of();
      if (PHASES.contains(phase)) return new Phase(phase, state.get("reason").text(), clock);
    } catch (IOException | IllegalArgumentException silent) {
      // no answer is told like one that says nothing
    }
    throw new NotSent(
        "The shuffler cannot be asked now whether the collection is open, so nothing was drawn. Try again later.",
        true);
  }

  /** Raises NotSent, in words, unless the collection takes reports; what its operator did to the clock. */
  public List<String> checkOpen() throws NotSent {
    Phase now = phase();
    if (now.phase.equals("open")) return now.clock;
    String reason = now.reason.isEmpty() ? "" : " (" + now.reason + ")";
    throw new NotSent(
        "This collection is " + now.phase + reason + ". Nothing is drawn and nothing is sent.", false);
  }

  /** Randomizes, seals and writes down, if the collection is open and that was not done before: then null. */
  public Prepared prepare(Value value, String ticket) throws IOException {
    return prepare(value, ticket, new Words());
  }

  Prepared prepare(Value value, String ticket, Words words) throws IOException {
    if (collection.why() != null) {
      throw new NotSent("This collection cannot be joined from here. " + collection.why(), false);
    }
    byte[] admitted = ticketOf(ticket);
    if (entry() != null) return null;
    checkOpen();
    Prepared prepared = draw(value, words);
    Sealer sealer = collection.sealer();
    byte[] boxes = sealer.boxes(prepared.payloads);
    byte[] report = sealer.report(boxes, admitted);
    if (report.length != collection.reportSize()) {
      throw new IllegalStateException("the report has a length that it should not have");
    }
    long now = System.currentTimeMillis();
    BigInteger moments = BigInteger.valueOf(1000L * collection.delay() + 1);
    long due = now + (collection.delay() == 0 ? 0 : words.below(moments).longValueExact());
    byte[] waiting = admitted.length > 0 ? boxes : null;
    Entry mine =
        new Entry(collection.digest(), Entry.State.MADE, report, waiting, due, now, 0, false, Spent.of(collection, options.user()));
    // another process may have been first: then its report is the one
    List<String> over = new ArrayList<>();
    Entry stored =
        update(
            entry -> {
              if (entry == null) over.addAll(exceeded(mine.spent()));
              return entry == null && over.isEmpty() ? mine : null;
            });
    if (!over.isEmpty()) throw new OverLimit(String.join(" ", over) + " Nothing was made or sent.");
    return Arrays.equals(stored.report(), report) ? prepared : null;
  }

  /** Asked where the outbox lets nobody else in, so that two processes cannot both stay below a limit. */
  private List<String> exceeded(Spent spent) {
    if (options.overLimit()) return List.of();
    try {
      List<Limit> limits = options.outbox().limits(options.user());
      return limits.isEmpty() ? List.of() : Budget.exceeded(options.outbox().entries(), spent, limits, collection.lastDay());
    } catch (IOException unreadable) {
      throw new UncheckedIOException(unreadable);
    }
  }

  private Prepared draw(Value value, Words words) {
    try {
      List<BigInteger> numbers = Report.numbersOf(collection.recipe(), value, words);
      return new Prepared(numbers, Report.payloadsOf(collection.recipe().get("payload"), numbers));
    } catch (Json.Unreadable | ArithmeticException | IndexOutOfBoundsException damaged) {
      throw new CollectionError("The recipe of this collection is invalid; do not take part.", damaged);
    }
  }

  /** Seals what was made for another ticket, after the shuffler refused the one before. */
  public void changeTicket(String ticket) throws IOException {
    Entry before = entry();
    if (!waitsForTicket(before)) throw new NotSent("No report waits for a ticket.", false);
    byte[] report = collection.sealer().report(before.boxes(), ticketOf(ticket));
    update(
        entry ->
            waitsForTicket(entry) && Arrays.equals(entry.report(), before.report())
                ? entry.with(report, 0)
                : null);
  }

  /** Whether a report waits that the shuffler cannot have stored under the ticket that it has. */
  public boolean waitsForTicket() throws IOException {
    return waitsForTicket(entry());
  }

  private static boolean waitsForTicket(Entry entry) {
    if (entry == null || entry.boxes() == null) return false;
    return entry.state() == Entry.State.MADE || entry.refused() == 403 || entry.refused() == 409;
  }

  private byte[] ticketOf(String ticket) throws NotSent {
    if (collection.ticket() == 0) return new byte[0];
    String digits = ticket.strip().toLowerCase(Locale.ROOT);
    if (!digits.matches("[0-9a-f]{32}")) {
      throw new NotSent("A ticket is 32 letters and digits, 0 to 9 and a to f.", true);
    }
    return Bytes.ofHex(digits);
  }

  /** Takes back what was made; no second report is drawn for this round. True: nothing was sent. False: it may have been. */
  public boolean decline() throws IOException {
    Entry nothing = new Entry(collection.digest(), Entry.State.MADE, null, null, 0, 0, 0, false, null);
    Entry entry =
        update(
            stored -> {
              if (stored == null) return nothing.in(Entry.State.DECLINED, false);
              if (stored.report() == null) return null;
              return stored.in(Entry.State.DECLINED, stored.state() == Entry.State.SENDING);
            });
    if (entry.state() == Entry.State.SENT) throw new NotSent("The report was sent already.", false);
    return !entry.tried();
  }

  /** Sends what waits in the outbox, again and again until the shuffler has stored it; throws NotSent otherwise. */
  public void send() throws IOException {
    Entry waiting = entry();
    if (waiting != null) pause(waiting.due() - System.currentTimeMillis());
    long end = System.nanoTime() / 1_000_000 + options.patience().toMillis();
    for (long wait = FIRST_PAUSE; ; wait = Math.min(2 * wait, LONGEST_PAUSE)) {
      // read again before every post: another process may have sent or declined it. From here on it may have been sent.
      Entry entry =
          update(
              stored ->
                  stored != null && stored.state() == Entry.State.MADE
                      ? stored.in(Entry.State.SENDING, false)
                      : null);
      if (entry == null) throw new NotSent("There is no report to be sent.", false);
      if (entry.state() == Entry.State.SENT) return;
      if (entry.report() == null) throw new NotSent(declined(entry), false);
      Posted posted = post(entry.report());
      int status = posted.status;
      if (status == 204) {
        update(stored -> entry.in(Entry.State.SENT, false));
        return;
      }
      if (status == 410) {
        throw new NotSent(
            "The collection is closed. Whether your report arrived in time is not known here.", false, status);
      }
      if (status > 0 && status < 500 && !LATER.contains(status)) {
        update(
            stored ->
                stored != null && Arrays.equals(stored.report(), entry.report())
                    ? stored.with(stored.report(), status)
                    : null);
        String refusal = "The shuffler refused the report (" + status + ").";
        throw new NotSent(REFUSED.getOrDefault(status, refusal), status == 403, status);
      }
      // when to ask again is no secret and no noise; it is never before the time that the shuffler asks for
      double jittered = wait * (0.75 + ThreadLocalRandom.current().nextDouble() / 2);
      long next = Math.max(Math.min(posted.later, LONGEST_PAUSE), (long) jittered);
      if (System.nanoTime() / 1_000_000 + next > end) {
        throw new NotSent(
            "The shuffler cannot be reached now. Your report waits on this device; send it again later.",
            true,
            status);
      }
      pause(next);
    }
  }

  /** The answer's status, 0 if there was none or a redirect, and how long to wait in milliseconds if it says so. */
  private record Posted(int status, long later) {}

  private Posted post(byte[] report) {
    try {
      Transport.Answer answer = options.transport().ask(collection.url(), report, LARGEST_ANSWER);
      boolean redirects = answer.status() >= 300 && answer.status() < 400;
      boolean isSeconds = answer.retryAfter().matches("[0-9]{1,9}");
      long later = isSeconds ? 1000 * Long.parseLong(answer.retryAfter()) : 0;
      return new Posted(redirects ? 0 : answer.status(), later);
    } catch (IOException silent) {
      return new Posted(0, 0);
    }
  }

  /** All of it, if no report was sent or declined before. One that waits is sent as it is, whatever is given now; the receipt says so. */
  public Receipt submit(Value value, String ticket) throws IOException {
    boolean fresh = prepare(value, ticket) != null;
    Entry entry = entry();
    if (!fresh && entry != null && entry.report() == null) {
      throw new NotSent(
          entry.state() == Entry.State.DECLINED
              ? declined(entry)
              : "Nothing was sent now: a report for this round was stored "
                  + when(entry)
                  + "; each person reports once. Another person must give another `user`.",
          false);
    }
    send();
    return new Receipt(
        fresh,
        fresh
            ? "The report is stored."
            : "The report that was made before is stored. The value given now was not used.");
  }

  /** Where no ticket is asked for. */
  public Receipt submit(Value value) throws IOException {
    return submit(value, "");
  }

  private static String when(Entry entry) {
    DateTimeFormatter format = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss");
    return "on " + format.format(Instant.ofEpochMilli(entry.at()).atZone(ZoneId.systemDefault()));
  }

  private static String declined(Entry entry) {
    return "It was declined "
        + when(entry)
        + ", on this device: "
        + (entry.tried() ? "it may have been sent before that, and is not sent again." : "nothing was sent.");
  }

  private static void pause(long milliseconds) throws NotSent {
    try {
      Thread.sleep(Math.max(0, milliseconds));
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw new NotSent("Sending was interrupted. Your report waits on this device; send it again later.", true);
    }
  }
}
