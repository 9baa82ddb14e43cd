package metricshuffle.client;

/**
 * Places in degrees as metres on a plane whose left bottom corner is 0, 0: azimuthal and equidistant about the middle of a box, on the
 * WGS84 ellipsoid.
 */
final class Plane {
  private static final double EQUATOR = 6_378_137;
  private static final double FLATTENING = 1 / 298.257223563;
  private static final double POLAR = EQUATOR * (1 - FLATTENING);
  private static final int EDGE_SAMPLES = 4097;
  private static final double DEGREE = Math.PI / 180;

  private final double latitude0;
  private final double longitude0;
  private double left = Double.POSITIVE_INFINITY;
  private double bottom = Double.POSITIVE_INFINITY;

  /** Of south, west, north and east in degrees. */
  Plane(double[] box) {
    double south = box[0];
    double west = box[1];
    double north = box[2];
    double east = box[3];
    latitude0 = (south + north) / 2;
    longitude0 = (west + east) / 2;
    // the image of a box is bounded by that of its edges; the widest latitude is the one nearest to the equator
    for (int sample = 0; sample < EDGE_SAMPLES; sample++) {
      double part = sample / (double) (EDGE_SAMPLES - 1);
      double latitude = south + (north - south) * part;
      double longitude = west + (east - west) * part;
      extend(latitude, west);
      extend(latitude, east);
      extend(south, longitude);
      extend(north, longitude);
    }
    double widest = Math.min(Math.max(0, south), north);
    extend(widest, west);
    extend(widest, east);
  }

  private void extend(double latitude, double longitude) {
    double[] place = fromMiddle(latitude, longitude);
    left = Math.min(left, place[0]);
    bottom = Math.min(bottom, place[1]);
  }

  /** Metres east and north of the left bottom corner. */
  double[] metres(double latitude, double longitude) {
    double[] place = fromMiddle(latitude, longitude);
    return new double[] {place[0] - left, place[1] - bottom};
  }

  /** East and north of the middle, in metres: distance and direction along the shortest line (Vincenty 1975; to within a millimetre). */
  private double[] fromMiddle(double latitude, double longitude) {
    if (latitude == latitude0 && longitude == longitude0) return new double[] {0, 0};
    double difference = (longitude - longitude0) * DEGREE;
    double reduced0 = Math.atan((1 - FLATTENING) * Math.tan(latitude0 * DEGREE));
    double reduced = Math.atan((1 - FLATTENING) * Math.tan(latitude * DEGREE));
    double sin0 = Math.sin(reduced0);
    double cos0 = Math.cos(reduced0);
    double sin1 = Math.sin(reduced);
    double cos1 = Math.cos(reduced);
    double lambda = difference;
    for (int round = 0; ; round++) {
      double across = cos1 * Math.sin(lambda);
      double along = cos0 * sin1 - sin0 * cos1 * Math.cos(lambda);
      double sinSigma = Math.hypot(across, along);
      double cosSigma = sin0 * sin1 + cos0 * cos1 * Math.cos(lambda);
      double sigma = Math.atan2(sinSigma, cosSigma);
      double sinAlpha = sinSigma == 0 ? 0 : cos0 * cos1 * Math.sin(lambda) / sinSigma;
      double cos2Alpha = 1 - sinAlpha * sinAlpha;
      double cos2Middle = cos2Alpha == 0 ? 0 : cosSigma - 2 * sin0 * sin1 / cos2Alpha;
      double middle2 = cos2Middle * cos2Middle;
      double c = FLATTENING / 16 * cos2Alpha * (4 + FLATTENING * (4 - 3 * cos2Alpha));
      double before = lambda;
      double inner = cos2Middle + c * cosSigma * (2 * middle2 - 1);
      lambda = difference + (1 - c) * FLATTENING * sinAlpha * (sigma + c * sinSigma * inner);
      if (Math.abs(lambda - before) > 1e-14 && round < 50) continue;
      double u2 = cos2Alpha * (EQUATOR * EQUATOR - POLAR * POLAR) / (POLAR * POLAR);
      double a = 1 + u2 / 16384 * (4096 + u2 * (-768 + u2 * (320 - 175 * u2)));
      double b = u2 / 1024 * (256 + u2 * (-128 + u2 * (74 - 47 * u2)));
      double third = b / 6 * cos2Middle * (4 * sinSigma * sinSigma - 3) * (4 * middle2 - 3);
      double second = b / 4 * (cosSigma * (2 * middle2 - 1) - third);
      double distance = POLAR * a * (sigma - b * sinSigma * (cos2Middle + second));
      double azimuth = Math.atan2(across, along);
      return new double[] {distance * Math.sin(azimuth), distance * Math.cos(azimuth)};
    }
  }
}
