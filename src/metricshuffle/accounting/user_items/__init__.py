"""Privacy of users with many items under the earth mover's distance."""
