// XLA's side: custom calls by the C interface of XLA's FFI (third_party/xla). Each handler checks types and sizes,
// which the Python side has made, and runs one function of `kernels()`.
#include <exception>

#include "convolve.h"
#include "pool_tasks.h"

namespace podium {
namespace {

// A buffer of fp32 with `rank` dimensions, or null.
struct Array {
  float* at = nullptr;
  const int64_t* dims = nullptr;
};

class Call {
 public:
  explicit Call(const XLA_FFI_CallFrame* frame) : frame_(frame) {}

  Array argument(int64_t i, int64_t rank) const {
    return i < frame_->args.size ? array(frame_->args.args[i], rank) : Array{};
  }
  Array result(int64_t i, int64_t rank) const {
    return i < frame_->rets.size ? array(frame_->rets.rets[i], rank) : Array{};
  }

  // The only attribute: an array of so many int64.
  const int64_t* numbers(size_t count) const {
    if (frame_->attrs.size != 1 || frame_->attrs.types[0] != XLA_FFI_AttrType_ARRAY) return nullptr;
    const auto* array = static_cast<const XLA_FFI_Array*>(frame_->attrs.attrs[0]);
    if (array->dtype != XLA_FFI_DataType_S64 || array->size != count) return nullptr;
    return static_cast<const int64_t*>(array->data);
  }

  XLA_FFI_Error* error(const char* message) const {
    XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message,
                                   XLA_FFI_Error_Code_INTERNAL};
    return frame_->api->XLA_FFI_Error_Create(&args);
  }

 private:
  static Array array(const void* given, int64_t rank) {
    const auto* buffer = static_cast<const XLA_FFI_Buffer*>(given);
    if (buffer->dtype != XLA_FFI_DataType_F32 || buffer->rank != rank) return {};
    return {static_cast<float*>(buffer->data), buffer->dims};
  }

  const XLA_FFI_CallFrame* frame_;
};

// XLA asks each handler once for the version of the interface that it was built with.
bool answered_metadata(const XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
  metadata->api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
  metadata->traits = 0;
  metadata->state_type_id = {0};
  return true;
}

template <typename Body>
XLA_FFI_Error* handle(const XLA_FFI_CallFrame* frame, const Body& body) {
  if (answered_metadata(frame)) return nullptr;
  const Call call(frame);
  try {
    PoolTasks tasks(frame);
    return body(call, tasks) ? nullptr : call.error("podium: a custom call has arguments that it does not know");
  } catch (const std::exception& failure) {
    return call.error(failure.what());
  }
}

bool sizes(const Call& call, const Array& x, const Array& w, const Array& y, Convolution* p) {
  const int64_t* window = call.numbers(3);
  if (!window || !x.at || !w.at || !y.at) return false;
  *p = {x.dims[0], x.dims[1], x.dims[2], x.dims[3], w.dims[0], w.dims[1],
        w.dims[3], y.dims[1], y.dims[2], window[0], window[1], window[2]};
  return y.dims[0] == p->n && y.dims[3] == p->k && w.dims[2] == p->c;
}

// A window of size × size; the attribute is size, stride, top, left.
bool pooling(const Call& call, const Array& x, const Array& y, Convolution* p) {
  const int64_t* window = call.numbers(4);
  if (!window || !x.at || !y.at) return false;
  *p = {x.dims[0], x.dims[1], x.dims[2], x.dims[3], window[0], window[0],
        x.dims[3], y.dims[1], y.dims[2], window[1], window[2], window[3]};
  return y.dims[0] == p->n && y.dims[3] == p->c;
}

// Arguments are x [rows, channels], constants [groups, kinds, channels] and, if there is a third, dy or a shortcut; the
// attribute says whether relu follows.
bool values(const Call& call, int64_t kinds, Values* p) {
  const int64_t* numbers = call.numbers(1);
  const Array x = call.argument(0, 2), constants = call.argument(1, 3), third = call.argument(2, 2);
  if (!numbers || !x.at || !constants.at || constants.dims[1] != kinds) return false;
  *p = {x.dims[0], x.dims[1], constants.dims[0], numbers[0] != 0, x.at, third.at, third.at, constants.at};
  return constants.dims[2] == p->channels && p->rows % p->groups == 0;
}

}  // namespace
}  // namespace podium

#define PODIUM_HANDLER(name) \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* podium_##name(XLA_FFI_CallFrame* frame)

PODIUM_HANDLER(convolve) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), w = call.argument(1, 4), y = call.result(0, 4);
    podium::Convolution p;
    if (!podium::sizes(call, x, w, y, &p)) return false;
    podium::kernels().forward(p, x.at, w.at, y.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(convolve_data_gradient) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto dy = call.argument(0, 4), w = call.argument(1, 4), dx = call.result(0, 4);
    podium::Convolution p;
    if (!podium::sizes(call, dx, w, dy, &p)) return false;
    podium::kernels().data_gradient(p, dy.at, w.at, dx.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(convolve_weight_gradient) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), dy = call.argument(1, 4), dw = call.result(0, 4);
    podium::Convolution p;
    if (!podium::sizes(call, x, dw, dy, &p)) return false;
    podium::kernels().weight_gradient(p, x.at, dy.at, dw.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(norm_sums) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto sums = call.result(0, 3);
    podium::Values p;
    if (!podium::values(call, 1, &p) || !sums.at) return false;
    podium::kernels().norm_sums(p, sums.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(norm_apply) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto y = call.result(0, 2);
    podium::Values p;
    if (!podium::values(call, 3, &p) || !y.at) return false;
    podium::kernels().norm_apply(p, y.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(norm_gradient_sums) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto sums = call.result(0, 3);
    podium::Values p;
    if (!podium::values(call, 3, &p) || !p.dy || !sums.at) return false;
    podium::kernels().norm_gradient_sums(p, sums.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(norm_gradient) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto dx = call.result(0, 2);
    podium::Values p;
    if (!podium::values(call, 5, &p) || !p.dy || !dx.at) return false;
    podium::kernels().norm_gradient(p, dx.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(halve) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), y = call.result(0, 4);
    podium::Convolution p;
    if (!podium::pooling(call, x, y, &p)) return false;
    podium::kernels().halve(p, x.at, y.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(halve_gradient) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), dy = call.argument(1, 4), dx = call.result(0, 4);
    podium::Convolution p;
    if (!podium::pooling(call, x, dy, &p) || !dx.at) return false;
    podium::kernels().halve_gradient(p, x.at, dy.at, dx.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(max_pool) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), y = call.result(0, 4);
    podium::Convolution p;
    if (!podium::pooling(call, x, y, &p)) return false;
    podium::kernels().max_pool(p, x.at, y.at, tasks);
    return true;
  });
}

PODIUM_HANDLER(max_pool_gradient) {
  return podium::handle(frame, [](const podium::Call& call, podium::Tasks& tasks) {
    const auto x = call.argument(0, 4), y = call.argument(1, 4), dy = call.argument(2, 4), dx = call.result(0, 4);
    podium::Convolution p;
    if (!podium::pooling(call, x, dy, &p) || !y.at || !dx.at) return false;
    podium::kernels().max_pool_gradient(p, x.at, y.at, dy.at, dx.at, tasks);
    return true;
  });
}

#define PODIUM_EXPORT extern "C" __attribute__((visibility("default")))

PODIUM_EXPORT int podium_convolve_abi() { return 1; }
PODIUM_EXPORT const char* podium_convolve_isa() { return podium::kernels().name; }
PODIUM_EXPORT int podium_convolve_use(const char* isa) { return podium::use_kernels(isa); }
PODIUM_EXPORT double podium_convolve_peak(double seconds) { return podium::kernels().peak(seconds); }
