// The C interface: one call per batch, one work item per image, the largest first from a shared counter. Threads are
// made per call: that costs some tens of microseconds against tens of milliseconds of work, and leaves nothing behind
// for fork, exit or a second caller to trip over.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "crop.h"
#include "decode.h"
#include "jpeg.h"
#include "podium_native.h"

namespace podium {
namespace {

// work(i, slot, scratch) fills slot i of the batch and returns its status; a slot that fails is left black.
template <class Cost, class Work>
void fill_batch(const podium_batch& batch, Cost cost, Work work) {
  const int n = batch.count, out_size = batch.out_size;
  int32_t* statuses = batch.statuses;
  if (out_size < 1 || out_size > PODIUM_MAX_OUT_SIZE) {
    std::fill_n(statuses, n, PODIUM_BAD_BOX);
    return;
  }
  const size_t slot_bytes = static_cast<size_t>(out_size) * out_size * 3;
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return cost(a) > cost(b); });

  std::atomic<int> next{0};
  const auto run = [&] {
    Scratch scratch;
    scratch.flags = batch.flags;
    for (int at; (at = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      const int i = order[at];
      uint8_t* slot = batch.out + i * slot_bytes;
      try {
        statuses[i] = work(i, slot, scratch);
      } catch (const std::bad_alloc&) {
        statuses[i] = PODIUM_NO_MEMORY;
      }
      if (statuses[i] != PODIUM_OK) std::memset(slot, 0, slot_bytes);
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < std::min(batch.threads, n); ++t) others.emplace_back(run);
  } catch (const std::exception&) {
    // No more threads to be had: those there are do the work.
  }
  run();
  for (auto& thread : others) thread.join();
}

Rect box_at(const podium_batch& batch, int i) {
  const int32_t* box = batch.boxes + 4 * static_cast<ptrdiff_t>(i);
  return {box[0], box[1], box[2], box[3]};
}

int32_t decode_one(const podium_batch& batch, int i, uint8_t* slot, Scratch& scratch) {
  const size_t index_bytes = batch.indexes ? batch.index_bytes[i] : 0;
  const File file{batch.images[i], batch.image_bytes[i], index_bytes ? batch.indexes[i] : nullptr, index_bytes};
  Decoded decoded;
  const int32_t status = decode_box(file, box_at(batch, i), batch.flags, scratch, &decoded);
  if (batch.stale) batch.stale[i] = decoded.stale;
  if (status != PODIUM_OK) return status;
  cut(scratch.decoded.data(), decoded.have, decoded.width, decoded.height, box_at(batch, i), batch.flips[i] != 0,
      batch.out_size, slot, scratch);
  return PODIUM_OK;
}

int32_t resize_one(const podium_batch& batch, int i, uint8_t* slot, Scratch& scratch) {
  const int w = batch.sizes_wh[2 * i], h = batch.sizes_wh[2 * i + 1];
  const Rect box = box_at(batch, i);
  const int32_t status = check_box(box, w, h);
  if (status != PODIUM_OK) return status;
  cut(batch.images[i], {0, 0, w, h}, w, h, box, batch.flips[i] != 0, batch.out_size, slot, scratch);
  return PODIUM_OK;
}

// For calls outside a batch: no exception may leave the library.
template <class Work>
int32_t guarded(Work work) {
  try {
    return work();
  } catch (const std::exception&) {
    return PODIUM_NO_MEMORY;
  }
}

}  // namespace
}  // namespace podium

using namespace podium;

int32_t podium_native_abi(void) { return PODIUM_NATIVE_ABI; }

const char* podium_status_message(int32_t status) {
  switch (status) {
    case PODIUM_OK: return "ok";
    case PODIUM_NOT_JPEG: return "not a JPEG file";
    case PODIUM_TRUNCATED: return "the JPEG file is cut off";
    case PODIUM_CORRUPT: return "the JPEG data are corrupt";
    case PODIUM_TOO_LARGE: return "more pixels or scans than are accepted";
    case PODIUM_UNSUPPORTED: return "a kind of JPEG that libjpeg-turbo cannot decode";
    case PODIUM_BAD_BOX: return "the crop box or output size is empty or too large";
    case PODIUM_SIZE_MISMATCH: return "the file's size is not the size given";
    case PODIUM_NO_MEMORY: return "out of memory";
    case PODIUM_CHANGED: return "its bytes do not match their checksum";
    default: return "unknown status";
  }
}

int32_t podium_jpeg_size(const uint8_t* jpeg, size_t jpeg_bytes, int32_t size_wh[2]) {
  JpegReader reader;
  const int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status != PODIUM_OK) return status;
  size_wh[0] = reader.width();
  size_wh[1] = reader.height();
  return PODIUM_OK;
}

void podium_decode_batch(const podium_batch* batch) {
  fill_batch(
      *batch, [&](int i) { return batch->image_bytes[i]; },
      [&](int i, uint8_t* slot, Scratch& scratch) { return decode_one(*batch, i, slot, scratch); });
}

void podium_resize_batch(const podium_batch* batch) {
  fill_batch(
      *batch, [&](int i) { return static_cast<int64_t>(batch->boxes[4 * i + 2]) * batch->boxes[4 * i + 3]; },
      [&](int i, uint8_t* slot, Scratch& scratch) { return resize_one(*batch, i, slot, scratch); });
}

int32_t podium_decode_pixels(const uint8_t* jpeg, size_t jpeg_bytes, const int32_t size_wh[2], int32_t flags,
                             uint8_t* out) {
  return guarded([&] { return decode_whole(jpeg, jpeg_bytes, size_wh, flags, out); });
}

int32_t podium_build_index(const uint8_t* jpeg, size_t jpeg_bytes, int32_t flags, uint8_t* index, size_t* index_bytes) {
  *index_bytes = 0;
  return guarded([&] { return build_index(jpeg, jpeg_bytes, flags, index, index_bytes); });
}
