"""CUDA source of rows of messages in fewer bits: see :mod:`gcnmpi.core.precision`.

A message is an array of bytes whose rows are ``row_bytes`` apart. Threads of a row find its scale,
and one writes it; a thread a number reads it there. Numbers and scales are not aligned: they are
written and read by bytes.
"""

from __future__ import annotations

from gcnmpi.core.precision import FORMATS

DEFINES = "".join(f"#define {name.upper()} {n}\n" for n, name in enumerate(FORMATS))

KERNELS = r"""
union Bits { float number; U32 bits; };

DEVICE U32 bits_of(float number) {
  Bits both;
  both.number = number;
  return both.bits;
}

DEVICE float float_of(U32 bits) {
  Bits both;
  both.bits = bits;
  return both.number;
}

// A subnormal number is a zero, also where a compiler's options keep it.
DEVICE U32 without_subnormals(U32 bits) { return bits & 0x7f800000u ? bits : bits & 0x80000000u; }

DEVICE float power_of_2(int k) { return float_of((U32)(k + 127) << 23); }

DEVICE void put_bytes(U8* to, U32 bits, int bytes) {
  for (int i = 0; i < bytes; ++i) to[i] = (U8)(bits >> (8 * i));
}

DEVICE U32 get_bytes(const U8* from, int bytes) {
  U32 bits = 0;
  for (int i = 0; i < bytes; ++i) bits |= (U32)from[i] << (8 * i);
  return bits;
}

#define NOT_A_NUMBER 0x7fc00000u
#define INFINITE 0x7f800000u
#define TOP (127 << 16)

DEVICE int with_sign(U8 byte) { return byte < 128 ? (int)byte : (int)byte - 256; }

extern "C" __global__ void encode_scales(
    const T* x, I x_row, I x_column, I width, I format, U8* out, I row_bytes,
    I rows, I columns) {
  LANE;
  U32 largest = 0;
  for (I j = lane; j < width; j += columns) {
    const U32 bits = bits_of((float)AT(x, i, j)) & 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  for (int apart = (int)columns / 2; apart > 0; apart /= 2) {
    const U32 bits = __shfl_xor_sync(0xffffffffu, largest, apart);
    if (bits > largest) largest = bits;
  }
  if (lane) return;
  const bool finite = largest < INFINITE;
  if (format == FP16) {
    int exponent = (int)(largest >> 23) - 127;
    exponent = !finite ? -128 : exponent < -112 ? -112 : exponent;
    out[i * row_bytes + 2 * width] = (U8)(exponent & 255);
  }
  if (format == INT8) {
    const U32 scale = !finite ? NOT_A_NUMBER : largest < (27u << 23) ? 0u : largest;
    put_bytes(out + i * row_bytes + width, scale, 4);
  }
}

extern "C" __global__ void encode_numbers(
    const T* x, I x_row, I x_column, I format, const U64* row_keys, const U32* column_keys,
    U8* out, I row_bytes, I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  U8* row = out + i * row_bytes;
  const float value = float_of(without_subnormals(bits_of((float)AT(x, i, j))));
  if (format == BF16) {
    const U32 u = bits_of(value);
    const bool number = (u & 0x7fffffffu) <= INFINITE;
    put_bytes(row + 2 * j, number ? (u + 0x7fffu + ((u >> 16) & 1u)) >> 16 : (u >> 16) | 0x40u, 2);
  }
  if (format == FP16) {
    const int exponent = with_sign(row[2 * columns]);
    const U32 u = exponent < -112 ? 0u : bits_of(value * power_of_2(14 - exponent));
    const U32 a = u & 0x7fffffffu;
    const U32 low = bits_of(float_of(a) + 0.5f) - (126u << 23);
    const U32 normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
    put_bytes(row + 2 * j, ((u >> 16) & 0x8000u) | (a < (113u << 23) ? low : normal), 2);
  }
  if (format == INT8) {
    const float largest = float_of(get_bytes(row + columns, 4));
    int v = 0;
    U32 h = 0;
    if (largest == largest) {
      const U64 key = row_keys[i];
      h = (U32)key ^ column_keys[j];
      h ^= h >> 16;
      h *= MIX1;
      h += (U32)(key >> 32);
      h ^= h >> 15;
      h *= MIX2;
      h ^= h >> 16;
      if (largest > 0) v = (int)(value * ((float)TOP / largest));
      v = v > TOP ? TOP : v < -TOP ? -TOP : v;
    }
    row[j] = (U8)(((v + (int)(h >> 16)) >> 16) & 255);
  }
}

extern "C" __global__ void decode_numbers(
    const U8* message, I row_bytes, I format, T* out, I out_row, I out_column,
    I rows, I columns) {
  const I i = ROW, j = COLUMN;
  if (i >= rows || j >= columns) return;
  const U8* row = message + i * row_bytes;
  float value = 0;
  if (format == BF16) value = float_of(get_bytes(row + 2 * j, 2) << 16);
  if (format == FP16) {
    const int exponent = with_sign(row[2 * columns]);
    const U32 h = get_bytes(row + 2 * j, 2), m = h & 0x7fffu;
    const U32 low = bits_of((float)(int)m * power_of_2(-24));
    const U32 a = m < 0x400u ? low : (m << 13) + (112u << 23);
    const float factor = exponent < -112 ? float_of(NOT_A_NUMBER) : power_of_2(exponent - 14);
    value = float_of(a | ((h & 0x8000u) << 16)) * factor;
  }
  if (format == INT8)
    value = (float)with_sign(row[j]) * (float_of(get_bytes(row + columns, 4)) / 127.0f);
  AT(out, i, j) = (T)value;
}
"""
