"""Independent check of the golden files with numpy only: python3 verify_golden.py DIR."""
import numpy as np, json, struct, sys, os, hashlib
d = sys.argv[1]; F = np.float32
def load(p):
    b = open(p, 'rb').read(); n = struct.unpack('<Q', b[:8])[0]; h = json.loads(b[8:8 + n]); o = {}
    for k, v in h.items():
        if k == '__metadata__': continue
        a, e = v['data_offsets']; dt = {'BF16': '<u2', 'F8_E4M3': 'u1', 'F8_E8M0': 'u1', 'F32': '<f4', 'I32': '<i4', 'U8': 'u1', 'F16': '<f2'}[v['dtype']]; o[k] = (np.frombuffer(b[8 + n + a:8 + n + e], dt).reshape(v['shape']), v['dtype'])
    return o
def bf2f(h): return (h.astype(np.uint32) << np.uint32(16)).view(F)
def f2bf(f):
    b = np.ascontiguousarray(f, F).view(np.uint32); r = ((b.astype(np.uint64) + 0x7fff + ((b >> 16) & 1)) >> 16).astype(np.uint16); return np.where(np.isnan(f), (b >> 16).astype(np.uint16) | 0x40, r)
TAB = np.array([(-1 if c & 128 else 1) * ((c & 7) / 8 * 2.0 ** -6 if (c >> 3 & 15) == 0 else (1 + (c & 7) / 8) * 2.0 ** ((c >> 3 & 15) - 7)) if c & 127 != 127 else float('nan') for c in range(256)], F)
POS = TAB[:127].astype(np.float64); MID = (POS[:-1] + POS[1:]) / 2
def e4m3(x, sat=False):  # fp32 -> code RNE; torch style: |x|>464 or nan -> 0x7f
    a = np.abs(x).astype(np.float64); c = np.searchsorted(MID, np.where(np.isnan(a), 0, a), side='left')  # count of midpoints < a
    tie = np.isin(a, MID); i = np.searchsorted(MID, np.where(np.isnan(a), 0, a)); c = np.where(tie, np.where(i % 2 == 0, i, i + 1), c)
    c = np.where((a > 464) & (not sat), 127, np.minimum(c, 126)); c = np.where(np.isnan(x), 127, c); return (c | (np.signbit(x).astype(int) << 7)).astype(np.uint8)
def ue8(s): b = np.ascontiguousarray(s, F).view(np.uint32) & 0x7fffffff; e = (b >> 23) + ((b & 0x7fffff) != 0); return np.clip(e, 1, 254).astype(np.uint8)
def pw(e): return (e.astype(np.uint32) << np.uint32(23)).view(F)
def blocks(x, bm, bn):
    M, N = x.shape; p = np.zeros((-(-M // bm) * bm, -(-N // bn) * bn), F); p[:M, :N] = x; return p.reshape(p.shape[0] // bm, bm, p.shape[1] // bn, bn)
def quant(x, bm, bn, ue, form):
    M, N = x.shape; b = blocks(x, bm, bn)
    with np.errstate(all='ignore'):
        am = np.maximum(np.abs(b).max((1, 3)), F(1e-4)); s = (am / F(448)).astype(F) if form == 'ieee' else (am * (F(1) / F(448))).astype(F)
        if ue: s = pw(ue8(s))
        q = (b / s[:, None, :, None]).astype(F)
    return e4m3(q).reshape(b.shape[0] * bm, -1)[:M, :N], s
bad = 0
def chk(n, ok):
    global bad
    if not ok: bad += 1
    print(('ok   ' if ok else 'DIFF ') + n)
man = json.load(open(d + '/manifest.json'))
t = load(d + '/table.e4m3_of_all_bf16.safetensors')['code'][0]; allx = bf2f(np.arange(65536, dtype=np.uint16)); c = e4m3(allx); nn = ~np.isnan(allx); chk('table e4m3 of all bf16 (non-NaN)', (t[nn] == c[nn]).all()); chk('table e4m3 values', np.array_equal(load(d + '/table.fp32_of_all_e4m3.safetensors')['value'][0], TAB, equal_nan=True))
r = load(d + '/table.e4m3_rounding_points.safetensors'); chk('rounding points', (e4m3(r['x'][0]) == r['code'][0]).all())
am = np.maximum(bf2f(np.arange(0x7f80, dtype=np.uint16)), F(1e-4)); s1, s2 = am / F(448), am * (F(1) / F(448)); print('scale forms: amax/448 vs amax*fl(1/448): differ in', int((s1 != s2).sum()), 'of', am.size, '; ue8m0 of the two differ in', int((ue8(s1) != ue8(s2)).sum()))
u = load(d + '/table.scales_of_all_bf16_amax.safetensors'); chk('ue8m0 table', (u['scale_ue8m0_byte'][0] == ue8(s1)).all()); chk('scale table IEEE', (u['scale_fp32'][0] == s1[0x3000:0x4800]).all())
for name, cse in man['input']['cases'].items():
    p = lambda f: next(q for q in (f'{d}/{name}.{f}.safetensors', f'{d}/big/{name}.{f}.safetensors') if os.path.exists(q))
    try: h = load(p('x'))['x'][0]
    except StopIteration: continue  # not kept in this folder
    x = bf2f(h); chk(f'{name} input sha', hashlib.sha256(h.tobytes()).hexdigest() == cse['sha256'])
    for tag, ue, form in (('fp32', 0, 'ieee'), ('ue8m0', 1, 'ieee'), ('fp32gpu', 0, 'mul')):
        try: f = load(p(f'w_{tag}'))
        except StopIteration: continue
        q, s = quant(x, 128, 128, ue, form); fq, fs = f['layer.weight'][0], f['layer.weight_scale_inv'][0]; nan = np.isnan(s)
        chk(f'{name} w_{tag} scales', np.array_equal(s, fs, equal_nan=True)); m = ~((q & 127) == 127); chk(f'{name} w_{tag} codes', (q[m] == fq[m]).all() and ((fq & 127) == 127).sum() == (~m).sum())
        dq = f2bf(TAB[fq] * np.repeat(np.repeat(fs, 128, 0), 128, 1)[:x.shape[0], :x.shape[1]]); fd = load(p(f'w_{tag}.deq'))['layer.weight'][0]; m = ~np.isnan(bf2f(fd)); chk(f'{name} w_{tag} dequant', (dq[m] == fd[m]).all())
        if not os.path.exists(f'{d}/{name}.a_{tag}.safetensors'): continue
        f = load(p(f'a_{tag}')); q, s = quant(x, 1, 128, ue, form); m = ~((q & 127) == 127); chk(f'{name} a_{tag}', (q[m] == f['x'][0][m]).all() and np.array_equal(s, f['x_scale'][0], equal_nan=True))
        if tag == 'ue8m0' and not name.startswith('edge'):
            sf = load(p('sf')); sd = sf if not os.path.exists(f'{d}/{name}.sf_deepgemm.safetensors') else load(p('sf_deepgemm')); M = x.shape[0]; ws = load(p('w_ue8m0'))['layer.weight_scale_inv'][0]
            for k, v in (('w_sf_packed', np.repeat(ws, 128, 0)[:M]), ('a_sf_packed', f['x_scale'][0]), ('w_sf_packed_unbroadcast', ws)):
                mn, kk = v.shape; P = np.zeros((-(-mn // 4) * 4, -(-kk // 4) * 4), np.uint8); P[:mn, :kk] = ue8(v); P = np.ascontiguousarray(P).view('<i4').T; chk(f'{name} {k}', np.array_equal(P, sf[k][0]) and np.array_equal(P, sd[k][0]))
            e = load(p('w_ue8m0.e8m0'))['layer.weight_scale_inv']; chk(f'{name} e8m0 dtype {e[1]}', (e[0] == ue8(ws)).all())
print('DIFFERENCES', bad)
sys.exit(bad != 0)
