// What stands before the entropy-coded data of a JPEG file, for the one kind that Podium decodes itself: 8-bit
// sequential Huffman, grey or YCbCr, chroma whole or halved, in one scan without restarts. Everything else, and every
// file with anything odd in its header, is left to libjpeg, which knows what to make of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rect.h"

namespace podium {

constexpr int max_components = 3, max_mcu_blocks = 6;

// Where the coefficient that comes i-th in the file stands in its block.
inline constexpr uint8_t natural_order[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                              12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                              35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                              58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// A Huffman table as it stands in the file; counts[i] codes have i + 1 bits. Not yet checked: see huffman.h.
struct HuffmanSpec {
  const uint8_t* counts = nullptr;   // 16
  const uint8_t* symbols = nullptr;  // as many as the counts sum up to
};

struct Component {
  int h, v;  // blocks of an MCU, across and down
  HuffmanSpec dc, ac;
  alignas(32) int16_t quant[64];  // in natural order; libjpeg's kernels too take the low 16 bits
};

struct Header {
  int width, height, components;
  int h, v;  // of component 0: an MCU is 8 h pixels wide and 8 v high
  int mcus_across, mcus_down;
  size_t scan_begin;  // offset of the first entropy-coded byte
  Component component[max_components];

  int mcu_blocks() const { return components == 1 ? 1 : h * v + 2; }
  int mcu_width() const { return 8 * h; }
  int mcu_height() const { return 8 * v; }
};

// False where libjpeg has to look at the file.
bool read_header(const uint8_t* jpeg, size_t jpeg_bytes, Header& header);

// A crop may end above a missing tail and never see it. Entropy-coded data cannot hold FF D9, so an end marker after
// the first scan's header means the file was written to its end. In a sound file the first look finds it.
bool has_end_marker(const uint8_t* begin, size_t bytes);

}  // namespace podium
