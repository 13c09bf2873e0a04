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

// What the loops below keep in registers; the rest of a Stream, also its place in the data, stays in memory.
struct Hot {
  uint64_t word;
  uint32_t state;
  const uint32_t* ac;
  int16_t* block;

  PODIUM_INLINE explicit Hot(const Stream& run)
      : word(run.bits.word), state(run.bits.state), ac(run.ac), block(run.block) {}
  PODIUM_INLINE void save(Stream& run) const {
    run.bits.word = word;
    run.bits.state = state;
    run.ac = ac;
    run.block = block;
  }
  PODIUM_INLINE size_t place() const { return state >> 8 & 0xFF; }
  PODIUM_INLINE void refill(Stream& run) { refill_bits(word, run.bits.at, state); }
  PODIUM_INLINE void take(uint32_t bits) {
    word <<= bits;
    state += bits;
  }
  // The value that follows a code: `size` bits, of which a leading zero means negative.
  PODIUM_INLINE int32_t take_value(uint32_t size) {
    const auto raw = static_cast<int32_t>(word >> 1 >> (63 - size));
    const auto negative = static_cast<int32_t>(~static_cast<int64_t>(word) >> 63);  // all ones, or 0: not a branch
    take(size);
    return raw - (((1 << size) - 1) & negative);
  }

  // One AC code. True where the block may be at its end.
  PODIUM_INLINE bool step(uint32_t& found) {
    found = ac[word >> (64 - ac_look)];
    word <<= found & 63;
    state += found;
    const size_t at = place();
    block[order.at[at]] = static_cast<int16_t>(found >> 16);
    return at >= 63;
  }
};

// The first step of a block: its place, its tables and its DC coefficient.
PODIUM_INLINE bool begin_block(Hot& hot, Stream& run) {
  Stream::Next& next = *run.next;
  hot.state &= 0xFF;
  hot.refill(run);
  hot.ac = next.ac->entry;
  hot.block = next.block;
  next.block += next.step;

  const DcTable::Code code = next.dc->code[hot.word >> (64 - dc_look)];
  uint32_t length = code.length, size = code.size;
  if (__builtin_expect(length == 0, 0)) {
    const uint32_t found = find_long_code(next.dc->codes, hot.word, dc_look);
    if (!found) return false;
    length = found >> 8;
    size = found & 0xFF;
  }
  hot.take(length);
  run.block_dc = *next.predictor += static_cast<uint32_t>(hot.take_value(size));
  return true;
}

// The block before is done: writes its DC coefficient and goes to the next.
PODIUM_INLINE Turn next_block(Hot& hot, Stream& run) {
  hot.block[0] = static_cast<int16_t>(run.block_dc);
  if (++run.next == run.mcu_end) {
    run.next = run.mcu;
    if (--run.mcus_left == 0) {
      if (run.keep == 0) return Turn::done;
      run.begin_keeping();
    }
  }
  if (__builtin_expect(run.bits.at > run.limit, 0)) return Turn::odd;
  return begin_block(hot, run) ? Turn::more : Turn::odd;
}

// A code whose entry says no more than "look closer". False where libjpeg has to.
PODIUM_INLINE bool look_closer(Hot& hot, Stream& run, uint32_t symbol) {
  hot.state -= closer_look << 8;
  hot.refill(run);
  if (symbol == code_unknown) {
    const uint32_t found = find_long_code(run.next->ac->codes, hot.word, ac_look);
    if (!found) return false;
    hot.take(found >> 8);
    symbol = found & 0xFF;
  }
  const uint32_t size = symbol & 15, moves = (symbol >> 4) + 1;
  if (size == 0) {
    hot.state += (moves == 16 ? 16 : end_of_block) << 8;
    return true;
  }
  hot.state += moves << 8;
  const auto value = static_cast<int16_t>(hot.take_value(size));
  hot.block[order.at[hot.place()]] = value;
  return true;
}

// After a step that may have ended its block.
PODIUM_INLINE Turn turn(Hot& hot, Stream& run, uint32_t found) {
  if (__builtin_expect((found >> 8 & 0xFF) == closer_look, 0)) {
    const size_t before = hot.place() - closer_look;
    if (!look_closer(hot, run, found >> 16)) return Turn::odd;
    if (hot.place() < 63) return Turn::more;
    if (hot.place() != 63 && hot.place() != before + end_of_block) return Turn::odd;
  } else if ((found >> 8 & 0xFF) != end_of_block && hot.place() != 63) {
    return Turn::odd;  // a run beyond the block: libjpeg has its own way with it
  }
  return next_block(hot, run);
}

PODIUM_INLINE bool overran(const Hot& hot, Stream& run) {
  hot.save(run);
  return run.overran();
}

constexpr int steps = 5;  // of at most 11 bits, on the 56 that a refill gives

PODIUM_INLINE bool run_one(Stream& run) {
  Hot hot(run);
  Turn next;
  do {
    uint32_t found;
  again:
    hot.refill(run);
#pragma GCC unroll 5
    for (int i = 0; i < steps; ++i) {
      if (hot.step(found)) goto stopped;
    }
    goto again;
  stopped:
    next = turn(hot, run, found);
  } while (next == Turn::more);
  return next == Turn::done && !overran(hot, run);
}

// Two runs in step: while one waits for its next entry, the other goes on.
PODIUM_INLINE bool run_two(Stream& first, Stream& second) {
  Hot a(first), b(second);
  uint32_t found;
  Turn next;
again:
  a.refill(first);
  b.refill(second);
  asm volatile("" : "+m"(first.bits.at), "+m"(second.bits.at));  // in memory, as two runs fill all registers
#pragma GCC unroll 5
  for (int i = 0; i < steps; ++i) {
    if (a.step(found)) goto first_stopped;
    if (b.step(found)) goto second_stopped;
  }
  goto again;

first_stopped:
  next = turn(a, first, found);
  if (next == Turn::more) goto again;
  b.save(second);
  return next == Turn::done && !overran(a, first) && run_one(second);

second_stopped:
  next = turn(b, second, found);
  if (next == Turn::more) goto again;
  a.save(first);
  return next == Turn::done && !overran(b, second) && run_one(first);
}

}  // namespace

void Stream::open(const McuPlan& mcu_plan, const uint8_t* unstuffed, size_t bytes, int first_bit) {
  plan = &mcu_plan;
  data = unstuffed;
  data_bytes = bytes;
  limit = data + data_bytes + 8;
  mcu_end = mcu + plan->blocks;
  bits.open(unstuffed);
  bits.take(static_cast<uint32_t>(first_bit));
}

bool Stream::start(int mcus_to_skip, int mcus_to_keep, int16_t* kept) {
  keep = mcus_to_keep;
  out = kept;
  next = mcu;
  if (mcus_to_skip > 0) {
    begin_skipping(mcus_to_skip);
  } else {
    begin_keeping();
  }
  Hot hot(*this);
  const bool begun = begin_block(hot, *this);
  hot.save(*this);
  return begun;
}

void Stream::begin_skipping(int mcus) {
  mcus_left = mcus;
  for (int i = 0; i < plan->blocks; ++i) {
    const McuBlock& block = plan->block[i];
    mcu[i] = {block.ac, block.dc, &dc[block.component], nowhere, 0};
  }
}

void Stream::begin_keeping() {
  mcus_left = keep;
  keep = 0;
  for (int i = 0; i < plan->blocks; ++i) {
    const McuBlock& block = plan->block[i];
    mcu[i] = {block.ac, block.dc, &dc[block.component], out + block.offset, block.step};
  }
}

bool decode_run_plain(Stream& run) { return run_one(run); }
bool decode_two_runs_plain(Stream& first, Stream& second) { return run_two(first, second); }

#if PODIUM_X86
PODIUM_TARGET_AVX2 bool decode_run_avx2(Stream& run) { return run_one(run); }
PODIUM_TARGET_AVX2 bool decode_two_runs_avx2(Stream& first, Stream& second) { return run_two(first, second); }
#endif

}  // namespace podium
