// XLA's side: `start` and `done` as custom calls by the C interface of XLA's FFI (third_party/xla), and what Python
// calls through ctypes before any of them.
#include <exception>

#include "engine.h"
#include "xla/ffi/api/c_api.h"

namespace podium {
namespace {

class Call {
 public:
  explicit Call(const XLA_FFI_CallFrame* frame) : frame_(frame) {}

  const XLA_FFI_Buffer* argument(int64_t i) const {
    if (i >= frame_->args.size) throw std::runtime_error("podium: a sum lacks an argument");
    return static_cast<const XLA_FFI_Buffer*>(frame_->args.args[i]);
  }
  float* result() const { return static_cast<float*>(static_cast<XLA_FFI_Buffer*>(frame_->rets.rets[0])->data); }

  // The only attribute: an array of so many int64.
  const int64_t* numbers(int64_t count) const {
    if (frame_->attrs.size == 1 && frame_->attrs.types[0] == XLA_FFI_AttrType_ARRAY) {
      const auto* array = static_cast<const XLA_FFI_Array*>(frame_->attrs.attrs[0]);
      if (array->dtype == XLA_FFI_DataType_S64 && static_cast<int64_t>(array->size) == count)
        return static_cast<const int64_t*>(array->data);
    }
    throw std::runtime_error("podium: a sum has attributes that it does not know");
  }

 private:
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
XLA_FFI_Error* handle(XLA_FFI_CallFrame* frame, const Body& body) {
  if (answered_metadata(frame)) return nullptr;
  try {
    body(Call(frame));
    return nullptr;
  } catch (const std::exception& failure) {
    XLA_FFI_Error_Create_Args args{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, failure.what(),
                                   XLA_FFI_Error_Code_INTERNAL};
    return frame->api->XLA_FFI_Error_Create(&args);
  }
}

}  // namespace
}  // namespace podium

#define PODIUM_EXPORT extern "C" __attribute__((visibility("default")))

PODIUM_EXPORT int podium_links_abi() { return 2; }

PODIUM_EXPORT int podium_links_listen(const char* address) {
  try {
    return podium::Engine::here().listen(address);
  } catch (const std::exception&) {
    return -1;
  }
}

PODIUM_EXPORT void podium_links_know(const unsigned char* secret, int devices, const char** addresses,
                                     const int* ports) {
  std::vector<podium::Peer> peers;
  for (int device = 0; device < devices; ++device) peers.push_back({addresses[device], ports[device]});
  podium::Engine::here().know(secret, std::move(peers));
}

PODIUM_EXPORT void podium_links_close() { podium::Engine::here().close_all(); }

// `shares` [routes]; `own` [routes, nodes]; `moves` [routes, ticks, 6] as in podium::Move.
PODIUM_EXPORT void podium_links_plan(int plan, int device, const int32_t* sizes, const int32_t* shares,
                                     const int32_t* own, const int32_t* moves) {
  const int nodes = sizes[0], node = sizes[1], routes = sizes[2], ticks = sizes[3];
  podium::Plan tables{nodes, node, routes, {shares, shares + routes}, {own, own + routes * nodes}, {}};
  for (int route = 0; route < routes; ++route) {
    std::vector<podium::Move> of_route;
    for (int tick = 0; tick < ticks; ++tick, moves += 6)
      of_route.push_back({moves[0], moves[1], moves[2], moves[3], moves[4], moves[5], true});
    tables.scatter.push_back(std::move(of_route));
  }
  podium::Engine::here().add(plan, device, std::move(tables));
}

// (rows f32, device i32) -> a token; the attribute is site, plan, mode, bf16, columns, pieces.
PODIUM_EXPORT XLA_FFI_Error* podium_links_start(XLA_FFI_CallFrame* frame) {
  return podium::handle(frame, [](const podium::Call& call) {
    const int64_t* numbers = call.numbers(6);
    const int device = *static_cast<const int32_t*>(call.argument(1)->data);
    const podium::Order order{static_cast<podium::Mode>(numbers[2]), numbers[3] != 0, numbers[4],
                              static_cast<int32_t>(numbers[5])};
    podium::Engine::here().start(static_cast<int>(numbers[0]), static_cast<int>(numbers[1]), device, order,
                                 static_cast<const float*>(call.argument(0)->data));
    *call.result() = 0;
  });
}

// (device i32, tokens that must be there) -> rows f32; the attribute is the site. No thread of XLA's waits.
PODIUM_EXPORT XLA_FFI_Error* podium_links_done(XLA_FFI_CallFrame* frame) {
  return podium::handle(frame, [frame](const podium::Call& call) {
    const int device = *static_cast<const int32_t*>(call.argument(0)->data);
    const XLA_FFI_Api* api = frame->api;
    XLA_FFI_Future_Create_Args made{XLA_FFI_Future_Create_Args_STRUCT_SIZE, nullptr, nullptr};
    if (api->XLA_FFI_Future_Create(&made)) throw std::runtime_error("podium: XLA makes no future");
    const auto then = [api, future = made.future](const std::string& error) {
      if (error.empty()) {
        XLA_FFI_Future_SetAvailable_Args set{XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, nullptr, future};
        api->XLA_FFI_Future_SetAvailable(&set);
        return;
      }
      const std::string told = "podium: a sum between processes ended: " + error;
      XLA_FFI_Error_Create_Args of{XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, told.c_str(),
                                   XLA_FFI_Error_Code_INTERNAL};
      XLA_FFI_Future_SetError_Args set{XLA_FFI_Future_SetError_Args_STRUCT_SIZE, nullptr, future,
                                       api->XLA_FFI_Error_Create(&of)};
      api->XLA_FFI_Future_SetError(&set);
    };
    frame->future = made.future;
    if (podium::Engine::here().done(static_cast<int>(call.numbers(1)[0]), device, call.result(), then)) then("");
  });
}
