package metricshuffle.client;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.time.Instant;
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

  private Budget() {}

  /** The reports of one person with their sums, in sentences. */
  public static List<String> sentences(List<Entry> entries, String user) {
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
    String today = Instant.now().atZone(ZoneOffset.UTC).toLocalDate().toString();
    String newest = groups.values().stream().flatMap(List::stream).map(entry -> entry.spent().day()).max(String::compareTo).orElse("");
    if (newest.compareTo(today) > 0) {
      lines.add("The clock of this device is behind the newest entry (" + newest + ").");
    }
    if (unknown > 0) {
      lines.add(unknown + " report(s) of an earlier version of this client, or of somebody else's, are not counted.");
    }
    lines.add("Reports made with other folders, or on other devices, are not known here.");
    return lines;
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
    lines.add("  " + sum(all, distance, Spent::local) + ", even if every shuffler colludes with the analysts;");
    lines.add("  " + sum(all, distance, Spent::shuffled) + ", if the shufflers are honest.");
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
  private static String sum(List<Spent> all, BigDecimal distance, Function<Spent, Spent.Loss> part) {
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
        if (!Double.isFinite(loss.epsilon())) return "no limit";
        largest = largest.max(at(loss, distance));
        largestDelta = largestDelta.max(exact(loss.delta()));
      }
      epsilon = epsilon.add(times.multiply(largest));
      delta = delta.add(times.multiply(largestDelta));
    }
    String small = delta.signum() == 0 ? "" : ", delta " + text(delta.min(BigDecimal.ONE), UP);
    return "epsilon " + text(epsilon, UP) + small;
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
