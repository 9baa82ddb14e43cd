package metricshuffle.client;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PublicKey;
import java.security.spec.X509EncodedKeySpec;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.crypto.Cipher;
import javax.crypto.KeyAgreement;
import javax.crypto.Mac;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/**
 * Sealed boxes, as collection/sealed_boxes.py describes them: HPKE (RFC 9180) in base mode with X25519, HKDF-SHA256 and AES-128-GCM, from
 * what every Java platform has.
 */
final class Sealer {
  /** Bytes that a layer adds. */
  static final int ADDED = 48;

  private static final byte[] PREFIX = ascii("metricshuffle-box/1\0");
  private static final byte[] PILE_PREFIX = ascii("metricshuffle-box/2\0");
  private static final int KEY_BYTES = 32;
  /** What stands before the 32 bytes of an X25519 key where it is encoded (RFC 8410). */
  private static final byte[] ENCODED = Bytes.ofHex("302a300506032b656e032100");
  private static final byte[] KEM_SUITE = Bytes.joined(ascii("KEM"), Bytes.ofHex("0020"));
  private static final byte[] SUITE = Bytes.joined(ascii("HPKE"), Bytes.ofHex("002000010001"));
  private static final byte[] NOTHING = {};

  private final byte[] digest;
  private final List<byte[]> keys;
  private final int piles;

  /** For the keys of a collection, the analyst's first and the first shuffler's last, and its piles that are mixed apart (or 0). */
  Sealer(byte[] digest, List<byte[]> keys, int piles) {
    this.digest = digest.clone();
    this.keys = List.copyOf(keys);
    this.piles = piles;
    for (byte[] key : keys) checkKey(key);
  }

  /** Refuses what is no key, or one of low order, with which everybody would know the secret. */
  private static void checkKey(byte[] key) {
    try {
      secretWith(newPair(), key);
    } catch (GeneralSecurityException refused) {
      throw new CollectionError(
          "This device cannot seal a report: it knows no X25519, or a key of this collection is none.",
          refused);
    }
  }

  /** Every message by itself, for the analyst and then for each shuffler behind the first. */
  byte[] boxes(List<byte[]> payloads) {
    List<byte[]> boxes = new ArrayList<>();
    for (int place = 0; place < payloads.size(); place++) {
      byte[] box = payloads.get(place);
      long pile = (long) place * piles / payloads.size();
      for (int layer = 0; layer < keys.size() - 1; layer++) box = sealed(box, info(layer, pile), layer);
      boxes.add(box);
    }
    return Bytes.joined(boxes);
  }

  /** The boxes and the ticket (if there is one), all together for the first shuffler. */
  byte[] report(byte[] boxes, byte[] ticket) {
    int layer = keys.size() - 1;
    return sealed(Bytes.joined(ticket, boxes), Bytes.joined(PREFIX, new byte[] {(byte) layer}, digest), layer);
  }

  /** What is inside of a report is bound to its pile, if there are piles. */
  private byte[] info(int layer, long pile) {
    byte[] number = {(byte) pile, (byte) (pile >> 8), (byte) (pile >> 16), (byte) (pile >> 24)};
    byte[] prefix = piles > 0 ? PILE_PREFIX : PREFIX;
    return Bytes.joined(prefix, new byte[] {(byte) layer}, digest, piles > 0 ? number : NOTHING);
  }

  private byte[] sealed(byte[] plain, byte[] info, int layer) {
    try {
      // a fresh pair for every box: one that is shared would link the messages again
      return sealed(plain, info, NOTHING, keys.get(layer), newPair());
    } catch (GeneralSecurityException refused) {
      throw new IllegalStateException("This device cannot seal a report.", refused);
    }
  }

  // HPKE

  private static KeyPair newPair() throws GeneralSecurityException {
    return KeyPairGenerator.getInstance("X25519").generateKeyPair();
  }

  /** Encapsulated key, ciphertext and tag. The pair must be a new one for every box. */
  static byte[] sealed(byte[] plain, byte[] info, byte[] associated, byte[] key, KeyPair ephemeral)
      throws GeneralSecurityException {
    byte[] encapsulated = bytesOf(ephemeral.getPublic());
    byte[] secret = secretWith(ephemeral, key);
    byte[] extracted = extract(KEM_SUITE, NOTHING, "eae_prk", secret);
    byte[] shared =
        expand(KEM_SUITE, extracted, "shared_secret", Bytes.joined(encapsulated, key), KEY_BYTES);
    byte[] context =
        Bytes.joined(
            new byte[1], // base mode
            extract(SUITE, NOTHING, "psk_id_hash", NOTHING),
            extract(SUITE, NOTHING, "info_hash", info));
    byte[] schedule = extract(SUITE, shared, "secret", NOTHING);
    SecretKeySpec symmetric = new SecretKeySpec(expand(SUITE, schedule, "key", context, 16), "AES");
    byte[] nonce = expand(SUITE, schedule, "base_nonce", context, 12);
    Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
    cipher.init(Cipher.ENCRYPT_MODE, symmetric, new GCMParameterSpec(128, nonce));
    cipher.updateAAD(associated);
    return Bytes.joined(encapsulated, cipher.doFinal(plain));
  }

  private static byte[] secretWith(KeyPair own, byte[] key) throws GeneralSecurityException {
    if (key.length != KEY_BYTES) throw new GeneralSecurityException("a key has 32 bytes");
    X509EncodedKeySpec encoded = new X509EncodedKeySpec(Bytes.joined(ENCODED, key));
    KeyAgreement agreement = KeyAgreement.getInstance("X25519");
    agreement.init(own.getPrivate());
    agreement.doPhase(KeyFactory.getInstance("X25519").generatePublic(encoded), true);
    byte[] secret = agreement.generateSecret();
    if (Arrays.equals(secret, new byte[KEY_BYTES])) {
      throw new GeneralSecurityException("a key of low order keeps no secret");
    }
    return secret;
  }

  private static byte[] bytesOf(PublicKey key) throws GeneralSecurityException {
    byte[] encoded = key.getEncoded();
    if (!Arrays.equals(ENCODED, 0, ENCODED.length, encoded, 0, ENCODED.length)
        || encoded.length != ENCODED.length + KEY_BYTES) {
      throw new GeneralSecurityException("a key is encoded in another way than RFC 8410 says");
    }
    return Arrays.copyOfRange(encoded, ENCODED.length, encoded.length);
  }

  /** LabeledExtract of RFC 9180, which is HKDF's (RFC 5869). */
  private static byte[] extract(byte[] suite, byte[] salt, String label, byte[] secret)
      throws GeneralSecurityException {
    // HMAC fills its key with zeros; Java takes no key without any byte
    byte[] key = salt.length == 0 ? new byte[32] : salt;
    return hmac(key, ascii("HPKE-v1"), suite, ascii(label), secret);
  }

  /** LabeledExpand of RFC 9180, of at most 32 bytes: one block. */
  private static byte[] expand(byte[] suite, byte[] key, String label, byte[] info, int length)
      throws GeneralSecurityException {
    byte[] size = {0, (byte) length};
    byte[] block = hmac(key, size, ascii("HPKE-v1"), suite, ascii(label), info, new byte[] {1});
    return Arrays.copyOf(block, length);
  }

  private static byte[] hmac(byte[] key, byte[]... parts) throws GeneralSecurityException {
    Mac mac = Mac.getInstance("HmacSHA256");
    mac.init(new SecretKeySpec(key, "HmacSHA256"));
    for (byte[] part : parts) mac.update(part);
    return mac.doFinal();
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
}
