package metricshuffle.client;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Parts of piles, to which shufflers add dummies; see collection/pile_recipes.py. */
final class Piles {
  private Piles() {}

  /** The messages of the first pile first; the bit of a wide ramp is 1 with probability v / width. */
  static List<BigInteger> numbersOf(Json recipe, long[] codes, Words words) {
    long[] items = Report.drawn(recipe, codes, words);
    Json floor = recipe.get("floor");
    long[] points = floor.isNull() ? items : Randomizer.randomized(floor, items, words);
    Json family = recipe.get("family");
    long[][] rows = Arrays.stream(points).mapToObj(code -> partsOf(family, code)).toArray(long[][]::new);
    if (family.get("kind").text().equals("ramps") && family.get("width").count() > 1) {
      drawBits(rows, family.get("width").integer(), words);
    }
    List<BigInteger> numbers = new ArrayList<>();
    for (int pile = 0; pile < rows[0].length; pile++) {
      for (long[] row : rows) numbers.add(BigInteger.valueOf(row[pile]));
    }
    return numbers;
  }

  private static void drawBits(long[][] rows, BigInteger width, Words words) {
    int piles = rows[0].length;
    BigInteger[] draws = words.residues(Math.multiplyExact(rows.length, piles), width);
    for (int item = 0; item < rows.length; item++) {
      for (int pile = 0; pile < piles; pile++) {
        rows[item][pile] = draws[item * piles + pile].longValueExact() < rows[item][pile] ? 1 : 0;
      }
    }
  }

  private static long[] partsOf(Json family, long code) {
    return switch (family.get("kind").text()) {
      case "boxes" -> boxesOf(family, code);
      case "ramps" -> thresholdsOf(family.get("width").count(), family.get("last").count(), code);
      case "levels" -> levelsOf(family.get("rows").list(), code);
      default ->
          throw new CollectionError(
              "This client does not know the piles of this collection; use a newer one.");
    };
  }

  /** The box of a cell in tilings of a grid, each shifted. */
  private static long[] boxesOf(Json family, long code) {
    long width = family.get("width").count();
    long across = family.get("across").count();
    return family.get("shifts").list().stream()
        .mapToLong(Json::count)
        .map(
            shift -> {
              long boxes = (across - 1 + shift) / width + 1;
              return (code / across + shift) / width * boxes + (code % across + shift) / width;
            })
        .toArray();
  }

  /** The thresholds of each window that lie at or above a point. */
  private static long[] thresholdsOf(int width, int last, long code) {
    long[] counts = new long[(last + width - 1) / width];
    for (int window = 0; window < counts.length; window++) {
      long start = (long) width * window;
      counts[window] = Math.max(0, Math.min(start + width, last) - Math.max(start, code));
    }
    return counts;
  }

  private static long[] levelsOf(List<Json> rows, long code) {
    if (code >= rows.size()) {
      throw new CollectionError("a value lies outside of what the piles are made for");
    }
    return rows.get((int) code).list().stream().mapToLong(Json::whole).toArray();
  }
}
