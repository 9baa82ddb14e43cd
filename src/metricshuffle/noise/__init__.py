"""Integer noise: exact laws with certificates, and exact samplers on a CSPRNG."""
