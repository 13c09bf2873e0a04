// Huffman codes to coefficients. One look at the next 11 bits gives run, value and length of most AC codes at once:
//
//   entry    value (16 bits) · how far the place in the block moves (8) · bits of code and value together (8)
//
// An entry is added to `Bits::state` as it is, which so counts the bits used in its low byte and the place in the
// block in its next one. A place of 63 or more ends the loop: the block is full, or the entry is the end of the block,
// or it needs a closer look (a code longer than 11 bits, or with its value).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bits.h"
#include "header.h"

namespace podium {

constexpr int ac_look = 11, dc_look = 9;

// Codes in the order of their length: those of l bits lie below limit[l] when shifted up to 16 bits.
struct LongCodes {
  uint32_t limit[17];
  int32_t offset[17];
  const uint8_t* symbols;
};

struct AcTable {
  uint32_t entry[1 << ac_look];
  LongCodes codes;
};

struct DcTable {
  struct Code {
    uint8_t length, size;  // length 0: longer than dc_look
  };
  Code code[1 << dc_look];
  LongCodes codes;
};

struct HuffmanTables {
  AcTable ac[max_components];
  DcTable dc[max_components];
  int ac_of[max_components], dc_of[max_components];  // by component: most files share tables between the last two
};

// False for tables that are no prefix code, or that libjpeg refuses.
bool build_tables(const Header& header, HuffmanTables& tables);

// One block of an MCU: its tables, and where the coefficients of MCU i go: out + offset + i * step.
struct McuBlock {
  const AcTable* ac;
  const DcTable* dc;
  int component, number;  // number: among the component's blocks of an MCU
  ptrdiff_t offset, step;
};

struct McuPlan {
  int blocks;
  McuBlock block[max_mcu_blocks];
};

// A run of MCUs in scan order: `skip` of them decoded into nothing, then `keep` into `out`, which holds zeros.
struct Stream {
  // Where the data are, from `open`.
  const McuPlan* plan;
  const uint8_t* data;
  size_t data_bytes;
  uint32_t dc[max_components];  // predictors; they wrap as libjpeg's do

  // Where decoding is.
  Bits bits;
  const uint32_t* ac;
  int16_t* block;
  uint32_t block_dc;
  const uint8_t* limit;  // where `bits.at` is only after more bits than there are
  struct Next {          // a block of the MCU: what decoding its next one needs
    const AcTable* ac;
    const DcTable* dc;
    uint32_t* predictor;
    int16_t* block;
    ptrdiff_t step;
  };
  Next *next, *mcu_end, mcu[max_mcu_blocks];
  int mcus_left, keep;  // `keep` follow on those left
  int16_t* out;
  int16_t nowhere[64];

  // `data` is unstuffed, with `padding` zeros after it; decoding begins at its bit `first_bit`, 0 … 7.
  void open(const McuPlan& mcu_plan, const uint8_t* unstuffed, size_t bytes, int first_bit);
  // Prepares a run of at least one MCU; decode_run or decode_two_runs then does it.
  bool start(int mcus_to_skip, int mcus_to_keep, int16_t* kept);
  void begin_skipping(int mcus);
  void begin_keeping();
  size_t bits_taken() const { return bits.taken(data); }
  bool overran() const { return bits_taken() > data_bytes * 8; }
};

}  // namespace podium
