// From coefficients to pixels: rows of blocks are transformed into one plane of samples per component, and rows of RGB
// follow as soon as the samples that they need are there. Planes hold the MCUs that a rectangle needs: its own, and
// those of the chroma samples beside it that upsampling looks at.
#pragma once

#include <cstddef>
#include <cstdint>

#include "header.h"
#include "kernels.h"
#include "memory.h"
#include "rect.h"

namespace podium {

// Columns and rows of MCUs, begin to end.
struct McuArea {
  int left, right, top, bottom;
  int across() const { return right - left; }
};

McuArea needed_mcus(const Header& header, const Rect& wanted);

struct PlaneScratch {
  Memory<uint8_t> samples[max_components];
  Memory<uint8_t> chroma[2];  // a row of each, upsampled
};

class Planes {
 public:
  Planes(const Header& header, const McuArea& area, PlaneScratch& scratch, const Kernels& kernels);

  // Where the coefficients of a component's block (row j of the MCU, column i) of the area's first MCU stand in a row
  // of MCUs, and how many that row has. Blocks of a block row follow each other, an even number of them.
  size_t block_offset(int component, int j, int i) const;
  size_t row_size() const { return block_offset(header_.components, 0, 0); }

  // Transforms row `row` of MCUs; its coefficients are zero afterwards.
  void add_row(int row, int16_t* coefficients);
  // Writes the rows of `wanted` that are complete with the rows of MCUs before `row`.
  void write_until(int row, const Rect& wanted, uint8_t* out);

 private:
  int blocks_across(int component) const { return area_.across() * header_.component[component].h; }
  int padded_blocks(int component) const { return (blocks_across(component) + 1) & ~1; }
  uint8_t* sample(int component, int x, int y) const;
  void extend_edges(int component, int row);
  void write_row(int y, const Rect& wanted, uint8_t* out);
  const uint8_t* upsampled(int component, int y, const Rect& wanted);

  const Header& header_;
  const McuArea area_;
  PlaneScratch& scratch_;
  const Kernels& kernels_;
  size_t stride_[max_components] = {};
  int written_ = 0;  // rows of `wanted`
};

}  // namespace podium
