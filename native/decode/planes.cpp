#include "planes.h"

#include <algorithm>

namespace podium {
namespace {

constexpr int margin = 32;  // bytes before and after each row: a neighbour for upsampling, a vector for the kernels

// MCUs of one axis that pixels begin … end need: their own, and where chroma is halved (to `n` samples) those of the
// neighbours. An even pixel does not look at the sample after its own, but libjpeg decodes that as well; so statuses
// agree.
void needed_units(int begin, int end, int rate, int n, int* first, int* last) {
  if (rate == 1) {
    *first = begin / 8;
    *last = (end - 1) / 8 + 1;
  } else {
    *first = std::max(begin / 2 - 1, 0) / 8;
    *last = std::min((end - 1) / 2 + 1, n - 1) / 8 + 1;
  }
}

}  // namespace

McuArea needed_mcus(const Header& header, const Rect& wanted) {
  McuArea area;
  needed_units(wanted.x, wanted.x + wanted.w, header.h, (header.width + 1) / 2, &area.left, &area.right);
  needed_units(wanted.y, wanted.y + wanted.h, header.v, (header.height + 1) / 2, &area.top, &area.bottom);
  return area;
}

Planes::Planes(const Header& header, const McuArea& area, PlaneScratch& scratch, const Kernels& kernels)
    : header_(header), area_(area), scratch_(scratch), kernels_(kernels) {
  for (int c = 0; c < header.components; ++c) {
    stride_[c] = static_cast<size_t>(padded_blocks(c)) * 8 + 2 * margin;
    const size_t rows = static_cast<size_t>(area.bottom - area.top) * header.component[c].v * 8;
    scratch.samples[c].at_least(rows * stride_[c]);
  }
  for (auto& row : scratch.chroma) row.at_least(static_cast<size_t>(area.across()) * header.mcu_width() + 2 * margin);
}

size_t Planes::block_offset(int component, int j, int i) const {
  size_t blocks = static_cast<size_t>(i);
  for (int c = 0; c < component; ++c) blocks += static_cast<size_t>(header_.component[c].v) * padded_blocks(c);
  if (component < header_.components) blocks += static_cast<size_t>(j) * padded_blocks(component);
  return blocks * 64;
}

// x and y count the component's samples from the image's corner.
uint8_t* Planes::sample(int component, int x, int y) const {
  const Component& one = header_.component[component];
  const auto row = static_cast<size_t>(y - area_.top * one.v * 8);
  return scratch_.samples[component].data() + row * stride_[component] + margin + (x - area_.left * one.h * 8);
}

void Planes::add_row(int row, int16_t* coefficients) {
  for (int c = 0; c < header_.components; ++c) {
    const Component& one = header_.component[c];
    for (int j = 0; j < one.v; ++j) {
      uint8_t* to = sample(c, area_.left * one.h * 8, (row * one.v + j) * 8);
      int16_t* blocks = coefficients + block_offset(c, j, 0);
      for (int i = 0; i < blocks_across(c); i += 2, blocks += 128, to += 16) {
        kernels_.transform_pair(blocks, one.quant, to, stride_[c]);
      }
    }
    if (c > 0 && header_.h == 2) extend_edges(c, row);
  }
}

// At the image's edge a chroma sample is its own neighbour.
void Planes::extend_edges(int component, int row) {
  const int end = (header_.width + 1) / 2;
  for (int y = row * 8; y < row * 8 + 8; ++y) {
    if (area_.left == 0) *sample(component, -1, y) = *sample(component, 0, y);
    if (area_.right == header_.mcus_across) *sample(component, end, y) = *sample(component, end - 1, y);
  }
}

// The row of a chroma component that belongs to row y of the image, from the wanted columns' first chroma sample on.
const uint8_t* Planes::upsampled(int component, int y, const Rect& wanted) {
  if (header_.h == 1 && header_.v == 1) return sample(component, wanted.x, y);
  uint8_t* to = scratch_.chroma[component - 1].data();
  const int first = wanted.x / header_.h, count = (wanted.x + wanted.w - 1) / header_.h - first + 1;
  const int near_row = y / header_.v;
  const uint8_t* near = sample(component, first, near_row);
  if (header_.v == 1) {
    kernels_.upsample_h2v1(near, count, to);
  } else {
    const int far_row = std::clamp(near_row + (y % 2 ? 1 : -1), 0, (header_.height + 1) / 2 - 1);
    const uint8_t* far = sample(component, first, far_row);
    if (header_.h == 1) {
      kernels_.upsample_h1v2(near, far, count, y % 2 ? 2 : 1, to);
    } else {
      kernels_.upsample_h2v2(near, far, count, to);
    }
  }
  return to + (wanted.x - first * header_.h);
}

void Planes::write_row(int y, const Rect& wanted, uint8_t* out) {
  const uint8_t* luma = sample(0, wanted.x, y);
  if (header_.components == 1) return kernels_.rgb_from_grey(luma, wanted.w, out);
  kernels_.rgb_from_ycc(luma, upsampled(1, y, wanted), upsampled(2, y, wanted), wanted.w, out);
}

void Planes::write_until(int row, const Rect& wanted, uint8_t* out) {
  int end = wanted.y + wanted.h;
  // Halved chroma rows look at the row below.
  if (row < area_.bottom) end = std::min(end, row * header_.mcu_height() - (header_.v - 1));
  const size_t row_bytes = static_cast<size_t>(wanted.w) * 3;
  for (; wanted.y + written_ < end; ++written_) {
    write_row(wanted.y + written_, wanted, out + static_cast<size_t>(written_) * row_bytes);
  }
}

}  // namespace podium
