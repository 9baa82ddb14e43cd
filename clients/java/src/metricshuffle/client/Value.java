package metricshuffle.client;

import java.util.List;

/** What a person enters. */
public sealed interface Value {
  record Number(double number) implements Value {}

  record Label(String label) implements Value {}

  /** A cell of a grid, counted from the left and from below, from 0. */
  record Cell(int column, int row) implements Value {}

  /** A place on a map, in degrees. */
  record Place(double latitude, double longitude) implements Value {}

  /** A label, and a number of a person of that group, or for that key. */
  record LabelledNumber(String label, double number) implements Value {}

  /** A trip from one label to another, or to the same. */
  record Trip(String from, String to) implements Value {}

  /** All that a person holds: several items, a number for each column, labels, or keys with numbers. */
  record Items(List<Value> items) implements Value {
    public Items {
      items = List.copyOf(items);
    }
  }

  static Value of(double number) {
    return new Number(number);
  }

  static Value of(String label) {
    return new Label(label);
  }
}
