"""Golden vectors of G.711 from CPython's audioop (Python <= 3.12).

Usage: python g711_golden.py OUT_DIR
Expansion: all 256 codes. Compression: the runs of equal codes over 0..=32767;
negative samples follow from ITU-T G.191's one's complement rule (audioop's
mu-law differs there by one least significant bit, its A-law does not).
"""
import audioop, json, pathlib, struct, sys, warnings

out = pathlib.Path(sys.argv[1])
for name, expand, compress in [
    ("mu", audioop.ulaw2lin, audioop.lin2ulaw),
    ("a", audioop.alaw2lin, audioop.lin2alaw),
]:
    values = list(struct.unpack("<256h", expand(bytes(range(256)), 2)))
    codes = compress(struct.pack("<32768h", *range(32768)), 2)
    runs = [[i, c] for i, c in enumerate(codes) if i == 0 or codes[i - 1] != c]
    (out / f"g711_{name}.json").write_text(json.dumps({"expand": values, "compress": runs}) + "\n")
