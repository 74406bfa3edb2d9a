"""Makes the BF16 golden inputs from a fixed integer generator (numpy only): python3 gen_golden_in.py OUTDIR."""
import numpy as np, json, os, sys, hashlib
out = sys.argv[1]; os.makedirs(out, exist_ok=True)
U = np.uint64
def sm64(x):
    with np.errstate(over='ignore'):
        x = x + U(0x9E3779B97F4A7C15); x = (x ^ (x >> U(30))) * U(0xBF58476D1CE4E5B9); x = (x ^ (x >> U(27))) * U(0x94D049BB133111EB); return x ^ (x >> U(31))
def bf16_rne(f):  # fp32 -> bf16 bits, round to nearest even (finite)
    b = f.astype(np.float32).view(np.uint32).astype(np.uint64); return ((b + U(0x7fff) + ((b >> U(16)) & U(1))) >> U(16)).astype(np.uint16)
def tofloat(h): return (h.astype(np.uint32) << np.uint32(16)).view(np.float32)
def gen(M, N, seed):
    i = np.arange(M * N, dtype=np.uint64); r = sm64(U(seed) * U(1 << 32) + i)
    mant = (r & U(0x7f)).astype(np.uint32); sign = ((r >> U(7)) & U(1)).astype(np.uint32)
    z = (r >> U(8)) & U(0xff); e = np.zeros(M * N, np.uint32)
    for k in range(8): e += (((z & U((1 << (k + 1)) - 1)) == 0)).astype(np.uint32)   # trailing zeros of bits 8..15, at most 8
    h = ((sign << 15) | ((121 - e) << 7) | mant).astype(np.uint16)
    row, col = i // U(N), i % U(N); nb = (N + 127) // 128; blk = ((row // U(128)) * U(nb) + col // U(128)).astype(np.int64)
    out_ = ((r >> U(40)) % U(997)) == 0
    h = np.where(out_, bf16_rne(tofloat(h) * np.float32(1000.0)), h)
    t = (r >> U(52)) % U(211)
    h = np.where(t == 0, (sign << 15).astype(np.uint16), h)                        # +0 / -0
    h = np.where(t == 1, ((sign << 15) | mant).astype(np.uint16), h)               # subnormals (or zero)
    base = ((sign << 15) | ((121 - e) << 7) | mant).astype(np.uint16)
    h = np.where(blk == 1, (sign << 15).astype(np.uint16), h)                      # block 1: zeros of both signs
    h = np.where(blk == 2, ((sign << 15) | mant).astype(np.uint16), h)             # block 2: subnormals
    h = np.where(blk == 3, ((sign << 15) | (113 << 7) | mant).astype(np.uint16), h)  # block 3: 2^-14..2^-13, amax just over 1e-4
    h = np.where(blk == 4, ((sign << 15) | (112 << 7) | mant).astype(np.uint16), h)  # block 4: 2^-15..2^-14, under the 1e-4 clamp
    h = np.where(blk == 5, base, h)                                                # block 5: plain, its first element 448*2^-12
    h = h.reshape(M, N)
    if nb and (M + 127) // 128 * nb > 5: h[(5 // nb) * 128, (5 % nb) * 128] = bf16_rne(np.array([448.0 * 2.0 ** -12], np.float32))[0]
    return h
spec = dict(generator='r = splitmix64(seed*2^32 + row*N+col); see gen_golden_in.py', cases={})
for k, (M, N) in enumerate([(128, 128), (256, 384), (1, 1), (130, 257), (64, 7168), (300, 100)]):
    h = gen(M, N, 100 + k); name = f'{M}x{N}'; h.astype('<u2').tofile(f'{out}/{name}.bf16.bin')
    spec['cases'][name] = dict(M=M, N=N, seed=100 + k, sha256=hashlib.sha256(h.astype('<u2').tobytes()).hexdigest(), amax=float(np.abs(tofloat(h)).max()))
# edge 256x256: block 0 one NaN, block 1 one +Inf and one -Inf, block 2 bf16 max, block 3 min normals
h = gen(256, 256, 200); h[:128, 128:] = gen(128, 128, 201); h[128:, :128] = gen(128, 128, 202); s = (h[128:, 128:] & 0x8000); h[128:, 128:] = s | 0x0080 | (h[128:, 128:] & 3)
h[3, 5] = 0x7fc0; h[7, 128 + 9] = 0x7f80; h[8, 128 + 9] = 0xff80; h[128 + 2, 2] = 0x7f7f; h[128 + 2, 3] = 0xff7f; h[128 + 2, 4] = 0x7f00; h[128 + 3, 2] = 0x7e80
h.astype('<u2').tofile(f'{out}/edge256x256.bf16.bin'); spec['cases']['edge256x256'] = dict(M=256, N=256, seed=200, sha256=hashlib.sha256(h.astype('<u2').tobytes()).hexdigest())
json.dump(spec, open(f'{out}/spec.json', 'w'), indent=1)
