package metricshuffle.client;

import static java.math.BigInteger.ONE;
import static java.math.BigInteger.ZERO;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;

/**
 * The exact noise of a report: rational rates, whole numbers, and digits of real numbers that random words are compared with.
 *
 * <p>Everything reads the words in the order in which metricshuffle's noise/samplers.py reads them, so that the same words give the same
 * draws; the laws and their proofs are told there and in noise/compound_poisson.py. Time depends on what is drawn.
 */
final class Noise {
  /** The probability of a step of noise falls by e^-(above/under). */
  record Rate(BigInteger above, BigInteger under) {
    static Rate of(Json recipe) {
      List<Json> parts = recipe.list();
      if (parts.size() != 2) throw new CollectionError("a rate of noise must be a fraction");
      Rate rate = new Rate(parts.get(0).integer(), parts.get(1).integer());
      if (rate.above.signum() < 1 || rate.under.signum() < 1) {
        throw new CollectionError("a rate of noise must be above 0");
      }
      return rate;
    }
  }

  private record Jumps(long[] run, List<long[]> bits, List<long[]> numbers, List<long[]> blocks) {}

  private final int whole;
  private final Rate rate;
  private final Jumps jumps;

  /** Polya's law: {@code whole} discrete Laplace draws, and the jumps of the rest of its shape. */
  Noise(Json recipe) {
    whole = recipe.get("whole").count();
    rate = Rate.of(recipe.get("rate"));
    Json tables = recipe.get("jumps");
    jumps =
        tables.isNull()
            ? null
            : new Jumps(
                digitsOf(tables.get("run").text()),
                rowsOf(tables.get("bits")),
                rowsOf(tables.get("numbers")),
                rowsOf(tables.get("blocks")));
    if (jumps != null && (jumps.bits.size() > 40 || jumps.blocks.size() > 63)) {
      throw new CollectionError("the tables of a noise are longer than any is");
    }
  }

  /** Digits of 64 bits behind the point of a number in 0..1, the first one first. */
  static long[] digitsOf(String hexadecimal) {
    if (!hexadecimal.matches("[0-9a-f]+") || hexadecimal.length() % 16 != 0) {
      throw new CollectionError("digits of a probability must be words of 16 hexadecimal digits");
    }
    long[] digits = new long[hexadecimal.length() / 16];
    for (int place = 0; place < digits.length; place++) {
      digits[place] = Long.parseUnsignedLong(hexadecimal.substring(16 * place, 16 * place + 16), 16);
    }
    return digits;
  }

  static List<long[]> rowsOf(Json texts) {
    return texts.texts().stream().map(Noise::digitsOf).toList();
  }

  /** Happens with probability e^-(above/under), for above <= under (Canonne, Kamath and Steinke 2020). */
  private static boolean expBernoulli(Words words, BigInteger above, BigInteger under) {
    BigInteger tries = ONE;
    for (; ; tries = tries.add(ONE)) {
      if (above.compareTo(under) < 0 && words.below(under).compareTo(above) >= 0) break;
      if (tries.compareTo(ONE) > 0 && words.below(tries).signum() != 0) break;
    }
    return tries.testBit(0);
  }

  /** K with P(K >= k) = e^(-k rate). */
  private static BigInteger geometric(Words words, Rate rate) {
    BigInteger start = words.below(rate.under);
    while (!expBernoulli(words, start, rate.under)) start = words.below(rate.under);
    BigInteger wholes = ZERO;
    while (expBernoulli(words, ONE, ONE)) wholes = wholes.add(ONE);
    return start.add(rate.under.multiply(wholes)).divide(rate.above);
  }

  /** Z with P(Z = z) proportional to e^(-rate |z|): a sign and a size, drawn again where it is "minus zero". */
  static BigInteger laplace(Words words, Rate rate) {
    for (; ; ) {
      boolean negative = words.next() < 0;
      BigInteger size = geometric(words, rate);
      if (!negative || size.signum() != 0) return negative ? size.negate() : size;
    }
  }

  /** How many of the falling numbers a uniform real number lies below: its digits are random words, as many as it takes to tell. */
  static int rank(Words words, List<long[]> rows) {
    List<Long> seen = new ArrayList<>();
    for (int place = 0; place < rows.size(); place++) {
      long[] row = rows.get(place);
      int digit = 0;
      for (; ; digit++) {
        if (digit == row.length) {
          throw new IllegalStateException(
              "256 random bits were equal to those of a probability: the source of randomness is broken");
        }
        if (digit == seen.size()) seen.add(words.next());
        if (seen.get(digit) != row[digit]) break;
      }
      if (Long.compareUnsigned(seen.get(digit), row[digit]) > 0) return place;
    }
    return rows.size();
  }

  /** K >= 1 with P(K = k) proportional to e^(-k rate) / k, by rejection from a staircase of blocks [2^i, 2^(i+1)) and a tail. */
  private static BigInteger jump(Words words, Rate rate, List<long[]> blocks) {
    for (; ; ) {
      int block = rank(words, blocks);
      BigInteger least = ONE.shiftLeft(block);
      BigInteger more = ZERO;
      if (block == blocks.size()) more = geometric(words, rate);
      else if (block > 0) more = Words.unsigned(words.next() >>> (64 - block));
      if (more.signum() == 0) return least;
      if (words.below(least.add(more)).compareTo(least) >= 0) continue;
      if (block == blocks.size() || expBernoulli(words, rate.above.multiply(more), rate.under)) {
        return least.add(more);
      }
    }
  }

  /** What is drawn is added to some columns of a vector. */
  void addTo(BigInteger[] values, int[] columns, Words words) {
    for (int draw = 0; draw < whole; draw++) {
      for (int column : columns) values[column] = values[column].add(laplace(words, rate));
    }
    if (jumps != null) addJumps(values, columns, words);
  }

  /** One negative binomial is added to every column, then one subtracted: no place without a jump is visited. */
  private void addJumps(BigInteger[] values, int[] columns, Words words) {
    long end = 2L * columns.length;
    for (long place = 0; place < end; ) {
      if (rank(words, List.of(jumps.run)) == 1) {
        place += 1L << jumps.bits.size();
        continue;
      }
      for (int level = 0; level < jumps.bits.size(); level++) {
        place += (long) rank(words, List.of(jumps.bits.get(level))) << level;
      }
      if (place >= end) return;
      int column = columns[(int) (place % columns.length)];
      for (int left = 1 + rank(words, jumps.numbers); left > 0; left--) {
        BigInteger size = jump(words, rate, jumps.blocks);
        BigInteger signed = place < columns.length ? size : size.negate();
        values[column] = values[column].add(signed);
      }
      place++;
    }
  }
}
