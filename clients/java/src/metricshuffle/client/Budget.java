package metricshuffle.client;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;

/** What the reports of an outbox reveal together, by unit of distance. Different units are never added up. */
public final class Budget {
  private static final MathContext UP = new MathContext(4, RoundingMode.CEILING);
  private static final MathContext DOWN = new MathContext(4, RoundingMode.FLOOR);
  private static final int DIGITS = 60;
  private static final BigDecimal LARGEST_DELTA = new BigDecimal("0.001"); // above it a limit counts as exceeded
  private static final String COLLUDING = "even if every shuffler or adder colludes with the analysts";
  private static final String HONEST = "if the shufflers or adders are honest";

  private Budget() {}

  /** The reports of one person with their sums, in sentences. */
  public static List<String> sentences(List<Entry> entries, List<Limit> limits, String user) {
    Map<String, List<Entry>> groups = new TreeMap<>();
    int unknown = 0;
    for (Entry entry : entries) {
      Spent spent = entry.spent();
      if (spent == null) unknown += entry.isUnaccounted() ? 1 : 0;
      else if (spent.user().equals(user)) groups.computeIfAbsent(group(spent), name -> new ArrayList<>()).add(entry);
    }
    List<String> lines = new ArrayList<>();
    lines.add(groups.isEmpty() ? "No report was made here." : "What your reports can reveal, as their tasks state it; nothing of it is verified here.");
    for (List<Entry> group : groups.values()) lines.addAll(sums(group));
    String today = LocalDate.now(ZoneOffset.UTC).toString();
    String newest = groups.values().stream().flatMap(List::stream).map(entry -> entry.spent().day()).max(String::compareTo).orElse("");
    if (newest.compareTo(today) > 0) {
      lines.add("The clock of this device is behind the newest entry (" + newest + ").");
    }
    for (Limit limit : limits) lines.add("Your limit: " + Main.printable(limit.toString()));
    if (unknown > 0) {
      lines.add(unknown + " report(s) of an earlier version of this client, or of somebody else's, are not counted.");
    }
    lines.add("Reports made with other folders, or on other devices, are not known here.");
    return lines;
  }

  /**
   * Why a new report would go over the limits of its person; empty if it would not.
   *
   * @param lastDay when its collection ends: a clock ahead of it is wrong
   */
  static List<String> exceeded(List<Entry> entries, Spent made, List<Limit> limits, String lastDay) {
    List<Limit> mine = limits.stream().filter(limit -> limit.unit().equals(made.unit())).toList();
    String unit = made.unit().isEmpty() ? "in tasks without a unit" : Main.printable(made.unit());
    if (mine.isEmpty()) return List.of("You have limits " + limits + ", and none for moves " + (made.unit().isEmpty() ? "" : "in ") + unit + ".");
    List<Spent> same = new ArrayList<>(List.of(made));
    for (Entry entry : entries) {
      Spent spent = entry.spent();
      boolean counts = spent != null && spent.user().equals(made.user()) && group(spent).equals(group(made));
      if (counts && !(spent.task().equals(made.task()) && spent.round() == made.round())) same.add(spent);
    }
    long today = Math.min(LocalDate.now(ZoneOffset.UTC).toEpochDay(), LocalDate.parse(lastDay).toEpochDay());
    List<String> sentences = new ArrayList<>();
    for (Limit limit : mine) {
      BigDecimal distance = new BigDecimal(limit.distance());
      // those of the future, by a clock that was set back, count too
      List<Spent> recent = same.stream().filter(spent -> today - LocalDate.parse(spent.day()).toEpochDay() <= limit.days()).toList();
      Sum sum = sum(recent, distance, limit.isIfHonest() ? Spent::shuffled : Spent::local);
      boolean isKept = sum.epsilon != null && sum.epsilon.compareTo(new BigDecimal(limit.epsilon())) <= 0;
      if (isKept && sum.delta.compareTo(LARGEST_DELTA) <= 0) continue;
      Sum beside = sum(recent, distance, limit.isIfHonest() ? Spent::local : Spent::shuffled);
      String who = limit.isIfHonest() ? HONEST : COLLUDING;
      String other = limit.isIfHonest() ? COLLUDING : HONEST;
      sentences.add(
          "With this report, those of " + limit.days() + " days sum up to " + sum + ", " + who + " (and to " + beside + ", " + other
              + "), for moves of " + limit.distance() + " " + unit + "; your limit is " + limit + ".");
    }
    return sentences;
  }

  /** Epsilon and delta together; epsilon is null if nothing limits it. */
  private record Sum(BigDecimal epsilon, BigDecimal delta) {
    @Override
    public String toString() {
      if (epsilon == null) return "no limit";
      String small = delta.signum() == 0 ? "" : ", delta " + text(delta, UP);
      return "epsilon " + text(epsilon, UP) + small;
    }
  }

  /** Distances can be compared if they have a unit and are between the same; otherwise within a task only. */
  private static String group(Spent spent) {
    return Json.write(List.of(spent.unit(), spent.moves(), spent.unit().isEmpty() ? spent.task() : ""));
  }

  private static List<String> sums(List<Entry> entries) {
    List<String> lines = new ArrayList<>();
    List<Spent> all = entries.stream().map(Entry::spent).toList();
    BigDecimal distance = null;
    for (Spent spent : all) {
      for (Spent.Loss loss : List.of(spent.local(), spent.shuffled())) {
        if (!Double.isFinite(loss.epsilon())) continue;
        BigDecimal own = exact(loss.distance());
        distance = distance == null ? own : distance.min(own);
      }
    }
    Spent first = all.get(0);
    String reach = distance == null ? " of any length" : " up to " + text(distance, DOWN);
    String unit = first.unit().isEmpty() ? " (task " + first.task().substring(0, 8) + ")" : " " + Main.printable(first.unit());
    lines.add("");
    lines.add("Moves" + (first.moves().isEmpty() ? "" : " between " + Main.printable(first.moves())) + reach + (distance == null && !first.unit().isEmpty() ? "" : unit) + ":");
    lines.add("  " + sum(all, distance, Spent::local) + ", " + COLLUDING + ";");
    lines.add("  " + sum(all, distance, Spent::shuffled) + ", " + HONEST + ".");
    for (Entry entry : entries) {
      Spent spent = entry.spent();
      String analyst = spent.analyst().isEmpty() ? "somebody" : Main.printable(spent.analyst());
      lines.add(
          "  " + spent.day() + " " + state(entry) + ": round " + spent.round() + " of task " + spent.task().substring(0, 8)
              + ", asked by " + analyst + ".");
    }
    return lines;
  }

  private static String state(Entry entry) {
    switch (entry.state()) {
      case SENT:
        return "sent";
      case DECLINED:
        return entry.tried() ? "declined, may have been sent" : "declined before it was sent, and counted";
      default:
        return entry.state() == Entry.State.MADE ? "made, not sent yet" : "may have been sent";
    }
  }

  /** Epsilon and delta of several tasks together at a distance. The rounds of one task have one loss together. */
  private static Sum sum(List<Spent> all, BigDecimal distance, Function<Spent, Spent.Loss> part) {
    BigDecimal epsilon = BigDecimal.ZERO;
    BigDecimal delta = BigDecimal.ZERO;
    for (String task : all.stream().map(Spent::task).distinct().toList()) {
      List<Spent> mine = all.stream().filter(spent -> spent.task().equals(task)).toList();
      long reports = mine.stream().map(Spent::round).distinct().count();
      long rounds = mine.stream().mapToLong(Spent::rounds).min().getAsLong();
      BigDecimal times = BigDecimal.valueOf((reports + rounds - 1) / rounds);
      BigDecimal largest = BigDecimal.ZERO; // nobody checked here that two entries of a task claim the same
      BigDecimal largestDelta = BigDecimal.ZERO;
      for (Spent spent : mine) {
        Spent.Loss loss = part.apply(spent);
        // a task promises nothing beyond its distance
        boolean isLimited = Double.isFinite(loss.epsilon()) && distance.compareTo(exact(loss.distance())) <= 0;
        if (!isLimited) return new Sum(null, BigDecimal.ONE); // whatever the others are
        largest = largest.max(at(loss, distance));
        largestDelta = largestDelta.max(exact(loss.delta()));
      }
      epsilon = epsilon.add(times.multiply(largest));
      delta = delta.add(times.multiply(largestDelta));
    }
    return new Sum(epsilon, delta.min(BigDecimal.ONE));
  }

  /** A number as it is written in the task. */
  private static BigDecimal exact(double number) {
    return new BigDecimal(Double.toString(number));
  }

  private static BigDecimal at(Spent.Loss loss, BigDecimal distance) {
    BigDecimal whole = exact(loss.epsilon());
    BigDecimal own = exact(loss.distance());
    if (!loss.isLinear() || own.signum() == 0 || distance.compareTo(own) >= 0) return whole;
    return whole.multiply(distance).divide(own, new MathContext(DIGITS, RoundingMode.CEILING));
  }

  private static String text(BigDecimal number, MathContext rounding) {
    BigDecimal rounded = number.round(rounding).stripTrailingZeros();
    boolean isUsual = rounded.signum() == 0 || rounded.abs().doubleValue() >= 1e-4 && rounded.abs().doubleValue() < 1e9;
    return isUsual ? rounded.toPlainString() : rounded.toString();
  }
}
