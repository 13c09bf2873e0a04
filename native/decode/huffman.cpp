#include "huffman.h"

#include "huffman_entry.h"

namespace podium {
namespace {

enum class Turn { more, done, odd };

// Where the coefficient of a place goes. Beyond the block lies the DC coefficient, which is written last.
struct Order {
  uint8_t at[256] = {};
  constexpr Order() {
    for (int i = 0; i < 64; ++i) at[i] = natural_order[i];
  }
};
constexpr Order order;

// Looks for a code longer than `look` bits: its length × 256 + symbol, or 0 if there is none.
[[gnu::noinline]] uint32_t find_long_code(const LongCodes& codes, uint64_t word, int look) {
  const auto top = static_cast<uint32_t>(word >> 48);
  for (int length = look + 1; length <= 16; ++length) {
    if (top < codes.limit[length]) {
      const int at = codes.offset[length] + static_cast<int32_t>(top >> (16 - length));
      return static_cast<uint32_t>(length) << 8 | codes.symbols[at];
    }
  }
  return 0;
}

// The value that follows a code: `size` bits, of which a leading zero means negative.
PODIUM_INLINE int32_t take_value(Bits& bits, uint32_t size) {
  const auto raw = static_cast<int32_t>(bits.word >> 1 >> (63 - size));
  const int32_t negative = static_cast<int64_t>(bits.word) >= 0 ? (1 << size) - 1 : 0;
  bits.take(size);
  return raw - negative;
}

// What the loop below keeps in registers; the rest of a Stream stays in memory.
struct Hot {
  Bits bits;
  const uint32_t* ac;
  int16_t* block;

  PODIUM_INLINE explicit Hot(const Stream& run) : bits(run.bits), ac(run.ac), block(run.block) {}
  PODIUM_INLINE void save(Stream& run) const {
    run.bits = bits;
    run.ac = ac;
    run.block = block;
  }
  PODIUM_INLINE uint32_t place() const { return bits.state >> 8 & 0xFF; }

  // One AC code. True where the block may be at its end.
  PODIUM_INLINE bool step(uint32_t& found) {
    found = ac[bits.word >> (64 - ac_look)];
    bits.word <<= found & 63;
    bits.state += found;
    block[order.at[place()]] = static_cast<int16_t>(found >> 16);
    return place() >= 63;
  }
};

// The first step of a block: its place, its tables and its DC coefficient.
PODIUM_INLINE bool begin_block(Hot& hot, Stream& run) {
  const McuBlock& block = run.plan->block[run.blocks_done];
  Bits& bits = hot.bits;
  bits.state &= 0xFF;
  bits.refill();
  hot.ac = block.ac->entry;
  hot.block = run.skip ? run.nowhere : run.out + block.offset + run.mcu * block.step;

  const auto top = static_cast<uint32_t>(bits.word >> (64 - dc_look));
  uint32_t length = block.dc->length[top], size = block.dc->size[top];
  if (__builtin_expect(length == 0, 0)) {
    const uint32_t found = find_long_code(block.dc->codes, bits.word, dc_look);
    if (!found) return false;
    length = found >> 8;
    size = found & 0xFF;
  }
  bits.take(length);
  run.block_dc = run.dc[block.component] += static_cast<uint32_t>(take_value(bits, size));
  return true;
}

// The block before is done: writes its DC coefficient and goes to the next.
PODIUM_INLINE Turn next_block(Hot& hot, Stream& run) {
  hot.block[0] = static_cast<int16_t>(run.block_dc);
  if (hot.bits.at > run.data + run.data_bytes + 8) return Turn::odd;
  if (++run.blocks_done == run.plan->blocks) {
    run.blocks_done = 0;
    if (run.skip) {
      --run.skip;
    } else {
      ++run.mcu;
    }
    if (run.skip == 0 && run.mcu == run.keep) return Turn::done;
  }
  return begin_block(hot, run) ? Turn::more : Turn::odd;
}

// A code whose entry says no more than "look closer". False where libjpeg has to.
PODIUM_INLINE bool look_closer(Hot& hot, const Stream& run, uint32_t symbol) {
  Bits& bits = hot.bits;
  bits.state -= closer_look << 8;
  bits.refill();
  if (symbol == code_unknown) {
    const uint32_t found = find_long_code(run.plan->block[run.blocks_done].ac->codes, bits.word, ac_look);
    if (!found) return false;
    bits.take(found >> 8);
    symbol = found & 0xFF;
  }
  const uint32_t size = symbol & 15, moves = (symbol >> 4) + 1;
  if (size == 0) {
    bits.state += (moves == 16 ? 16 : end_of_block) << 8;
    return true;
  }
  bits.state += moves << 8;
  const auto value = static_cast<int16_t>(take_value(bits, size));
  hot.block[order.at[hot.place()]] = value;
  return true;
}

// After a step that may have ended its block.
PODIUM_INLINE Turn turn(Hot& hot, Stream& run, uint32_t found) {
  if ((found >> 8 & 0xFF) == closer_look) {
    const uint32_t before = hot.place() - closer_look;
    if (!look_closer(hot, run, found >> 16)) return Turn::odd;
    if (hot.place() < 63) return Turn::more;
    if (hot.place() == before + end_of_block) return next_block(hot, run);
  } else if ((found >> 8 & 0xFF) == end_of_block) {
    return next_block(hot, run);
  }
  return hot.place() == 63 ? next_block(hot, run) : Turn::odd;  // a run beyond the block: libjpeg has its own way
}

constexpr int steps = 4;  // of at most 11 bits, on the 56 that a refill gives

PODIUM_INLINE bool run_one(Stream& run) {
  Hot hot(run);
  for (;;) {
    hot.bits.refill();
    uint32_t found = 0;
    bool stopped = false;
#pragma GCC unroll 4
    for (int i = 0; i < steps && !stopped; ++i) stopped = hot.step(found);
    if (!stopped) continue;
    const Turn next = turn(hot, run, found);
    if (next == Turn::more) continue;
    hot.save(run);
    return next == Turn::done && !run.overran();
  }
}

// Two runs in step: while one waits for its next entry, the other goes on.
PODIUM_INLINE bool run_two(Stream& first, Stream& second) {
  Hot a(first), b(second);
  for (;;) {
    a.bits.refill();
    b.bits.refill();
    uint32_t found = 0;
    bool a_stopped = false, b_stopped = false;
#pragma GCC unroll 4
    for (int i = 0; i < steps; ++i) {
      if ((a_stopped = a.step(found))) break;
      if ((b_stopped = b.step(found))) break;
    }
    Turn next = Turn::more;
    if (a_stopped) {
      next = turn(a, first, found);
    } else if (b_stopped) {
      next = turn(b, second, found);
    }
    if (next == Turn::more) continue;
    a.save(first);
    b.save(second);
    if (next == Turn::odd) return false;
    return a_stopped ? !first.overran() && run_one(second) : !second.overran() && run_one(first);
  }
}

}  // namespace

void Stream::open(const McuPlan& mcu_plan, const uint8_t* unstuffed, size_t bytes, int first_bit) {
  plan = &mcu_plan;
  data = unstuffed;
  data_bytes = bytes;
  bits.open(unstuffed);
  bits.take(static_cast<uint32_t>(first_bit));
}

bool Stream::start(int mcus_to_skip, int mcus_to_keep, int16_t* kept) {
  blocks_done = mcu = 0;
  skip = mcus_to_skip;
  keep = mcus_to_keep;
  out = kept;
  Hot hot(*this);
  const bool begun = begin_block(hot, *this);
  hot.save(*this);
  return begun;
}

bool decode_run_plain(Stream& run) { return run_one(run); }
bool decode_two_runs_plain(Stream& first, Stream& second) { return run_two(first, second); }

#if PODIUM_AVX2
PODIUM_TARGET_AVX2 bool decode_run_avx2(Stream& run) { return run_one(run); }
PODIUM_TARGET_AVX2 bool decode_two_runs_avx2(Stream& first, Stream& second) { return run_two(first, second); }
#endif

}  // namespace podium
