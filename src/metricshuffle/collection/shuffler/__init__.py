"""The shuffler: admission, storage, mixing and release of sealed reports."""
