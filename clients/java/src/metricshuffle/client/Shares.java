package metricshuffle.client;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A number, or a vector of them, as residues that add up to it: all but one of them exactly uniform. */
final class Shares {
  private Shares() {}

  static List<BigInteger> modular(BigInteger value, BigInteger modulus, int count, Words words) {
    if (count < 1) throw new CollectionError("a number must have at least one share");
    List<BigInteger> shares = new ArrayList<>(Arrays.asList(words.residues(count - 1, modulus)));
    BigInteger last = shares.stream().reduce(value, BigInteger::subtract).mod(modulus);
    shares.add(last);
    return shares;
  }

  /** Group by group, {@code shares} elements of {@code width} residues modulo 2^bits that add up to the group. A word holds several residues. */
  static List<BigInteger> packed(BigInteger[] values, Json recipe, int width, Words words) {
    int bits = recipe.get("bits").count();
    int together = recipe.get("together").count();
    int shares = recipe.get("shares").count();
    if (bits < 1 || bits > 63 || together < 1 || width < together || shares < 1) {
      throw new CollectionError("the shares of this collection are none that this client knows");
    }
    long mask = (1L << bits) - 1;
    List<BigInteger> numbers = new ArrayList<>();
    long word = 0;
    int left = 0;
    for (int first = 0; first < values.length; first += together) {
      BigInteger[] last = new BigInteger[width];
      for (int place = 0; place < width; place++) {
        boolean isValue = place < together && first + place < values.length;
        last[place] = isValue ? values[first + place] : BigInteger.ZERO;
      }
      for (int share = 1; share < shares; share++) {
        for (int place = 0; place < width; place++) {
          if (left == 0) {
            word = words.next();
            left = 64 / bits;
          }
          BigInteger residue = BigInteger.valueOf(word & mask);
          word >>>= bits;
          left--;
          last[place] = last[place].subtract(residue);
          numbers.add(residue);
        }
      }
      for (BigInteger value : last) numbers.add(value.and(BigInteger.valueOf(mask)));
    }
    return numbers;
  }
}
