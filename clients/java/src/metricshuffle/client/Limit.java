package metricshuffle.client;

import java.math.BigDecimal;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A limit that a person sets on the sum of their reports of some days, at a distance.
 *
 * @param epsilon decimal number, as it was typed
 * @param distance decimal number, as it was typed
 * @param unit of distances; empty for tasks without one
 * @param isIfHonest whether it limits the sum that holds if the shufflers are honest, and not the one that holds even if they collude
 */
public record Limit(String epsilon, String distance, String unit, int days, boolean isIfHonest) {
  private static final String NUMBER = "[0-9]{1,12}(?:\\.[0-9]{1,12})?";
  private static final Pattern TEXT =
      Pattern.compile("(none|" + NUMBER + ") at (" + NUMBER + ")(?: (\\S.*?))? in ([0-9]{1,5}) ?d(?:ays?)?( if honest)?");
  static final String NONE = "none";

  /** Reads a limit like {@code 3 at 100 kcal in 30d}; with {@code none} instead of the epsilon it is to be removed. */
  public static Limit parse(String text) {
    Matcher parts = TEXT.matcher(text.strip().replaceAll("\\s+", " "));
    boolean isLimit = parts.matches() && Integer.parseInt(parts.group(4)) > 0;
    if (!isLimit || new BigDecimal(parts.group(2)).signum() == 0) {
      throw new IllegalArgumentException(
          "A limit is written like \"3 at 100 kcal in 30d\": an epsilon, a distance with its unit, and a number of days; with \"if honest\""
              + " behind it, it limits the sum that holds if the shufflers are honest.");
    }
    String unit = parts.group(3) == null ? "" : parts.group(3);
    return new Limit(parts.group(1), parts.group(2), unit, Integer.parseInt(parts.group(4)), parts.group(5) != null);
  }

  /** Whether it is about the same distance and days. */
  boolean replaces(Limit other) {
    return new Limit(other.epsilon, distance, unit, days, isIfHonest).equals(other);
  }

  @Override
  public String toString() {
    String place = unit.isEmpty() ? "" : " " + unit;
    return epsilon + " at " + distance + place + " in " + days + "d" + (isIfHonest ? " if honest" : "");
  }
}
