// What the inputs of an operator look like: their shapes and dtypes, as a hash and as JSON text. The one part that
// needs the headers of PyTorch: `capture/shapes.py` compiles this file against those of the program's own torch, tries
// the result out in a throw-away process, and the agent (native/agent/shapes.c) calls it as an operator begins.
//
// Nothing here allocates, holds a reference, calls Python or lets an exception out.
#include <ATen/record_function.h>

#include <charconv>
#include <cstdint>
#include <cstring>

#ifndef __GLIBCXX__
#error "PyTorch is built with libstdc++, and this compiler has another C++ library: its layouts differ"
#endif

#define LS_SHAPES_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// By c10::ScalarType; the numbers are part of PyTorch's file format and stay.
constexpr const char *DTYPES[] = {
    "uint8",     "int8",         "int16",       "int32",           "int64",         "float16",  "float32",
    "float64",   "complex32",    "complex64",   "complex128",      "bool",          "qint8",    "quint8",
    "qint32",    "bfloat16",     "quint4x2",    "quint2x4",        "bits1x8",       "bits2x4",  "bits4x2",
    "bits8",     "bits16",       "float8_e5m2", "float8_e4m3fn",   "float8_e5m2fnuz", "float8_e4m3fnuz",
    "uint16",    "uint32",       "uint64",      "uint1",           "uint2",         "uint3",    "uint4",
    "uint5",     "uint6",        "uint7",       "int1",            "int2",          "int3",     "int4",
    "int5",      "int6",         "int7",        "float8_e8m0fnu",  "float4_e2m1fn_x2",
};

struct Tensor {
    const int64_t *sizes = nullptr; // null: it has none that are numbers
    uint64_t dims = 0;
    uint32_t dtype = UINT32_MAX;
};

// A nested tensor has no shape of one kind, one that is being traced may have symbols for sizes, and one of a Python
// class may compute its own: that would run the program's code, so it is what the C++ side holds.
Tensor look_at(const c10::TensorImpl *impl) {
    Tensor t;
    caffe2::TypeMeta type = impl->dtype(); // a copy: its functions are not const in older versions
    if (C10_LIKELY(type.isScalarType()))
        t.dtype = static_cast<uint32_t>(type.toScalarType());
    if (C10_UNLIKELY(impl->is_nested() || impl->has_symbolic_sizes_strides()))
        return t;
    const c10::IntArrayRef sizes = C10_UNLIKELY(impl->is_python_dispatch()) ? impl->sizes_default() : impl->sizes();
    static const int64_t none = 0;
    t.sizes = sizes.empty() ? &none : sizes.data();
    t.dims = sizes.size();
    return t;
}

// Scalars are told apart by their type, everything else that is no tensor is a null.
const char *scalar_type(const c10::IValue &value) {
    return value.isNone() ? nullptr : value.isInt() ? "int" : value.isDouble() ? "float" : value.isBool() ? "bool"
         : value.isComplexDouble() ? "complex" : value.isSymInt() ? "int" : value.isSymFloat() ? "float" : nullptr;
}

bool holds_tensors(const c10::IValue &list) {
    if (list.isTensorList())
        return true;
    for (const c10::IValue &value : list.toListRef()) // List[Optional[Tensor]], as of an index
        if (value.isTensor())
            return true;
        else if (!value.isNone())
            return false;
    return false;
}

template <class Visitor> bool show(const c10::IValue &value, Visitor &visitor) {
    if (!value.isTensor())
        return visitor.other(scalar_type(value)), false;
    const c10::TensorImpl *impl = value.unsafeToTensorImpl();
    if (impl == c10::UndefinedTensorImpl::singleton())
        return visitor.other(nullptr), false;
    return visitor.tensor(look_at(impl)), true;
}

// Shows the visitor every input; whether a tensor is among them.
template <class Visitor> bool walk(const at::RecordFunction &function, Visitor &visitor) {
    bool found = false;
    for (const c10::IValue &value : function.inputs()) {
        if (value.isTensor() || !value.isList() || !holds_tensors(value)) {
            found |= show(value, visitor);
            continue;
        }
        visitor.open();
        for (const c10::IValue &one : value.toListRef())
            found |= show(one, visitor);
        visitor.close();
    }
    return found;
}

class Hash {
  public:
    void tensor(const Tensor &t) {
        if (!t.sizes)
            return add(~uint64_t{0} ^ t.dtype);
        // Number of dimensions, dtype and the first size in one word: there is room for 48 bits of it.
        add(t.dims << 56 ^ uint64_t{t.dtype & 0xff} << 48 ^ static_cast<uint64_t>(t.dims ? *t.sizes : 0));
        for (uint64_t i = 1; i < t.dims; i++)
            add(static_cast<uint64_t>(t.sizes[i]));
    }
    void other(const char *type) { add(type ? 0x100 + static_cast<unsigned char>(*type) : 0x200); }
    void open() { add(0x301); }
    void close() { add(0x302); }
    uint64_t value() const { return state ? state : 1; }

  private:
    void add(uint64_t word) { state = ((state << 27 | state >> 37) ^ word) * 0xff51afd7ed558ccdu; }
    uint64_t state = 0x9e3779b97f4a7c15u;
};

// One JSON list that never outgrows its memory; `bad` once something did not fit.
struct List {
    char text[1024];
    uint32_t length = 0;
    bool bad = false;

    void put(const char *piece, uint32_t bytes) {
        bad |= length + bytes > sizeof text;
        if (bad)
            return;
        std::memcpy(text + length, piece, bytes);
        length += bytes;
    }
    void put(const char *piece) { put(piece, static_cast<uint32_t>(std::strlen(piece))); }
    void put(int64_t number) {
        char digits[24];
        put(digits, static_cast<uint32_t>(std::to_chars(digits, digits + sizeof digits, number).ptr - digits));
    }
};

// {"shapes": [[2, 3], null], "dtypes": ["float32", "int"]}; what does not fit is left out from the first such input
// on, and "cut" says so.
class Text {
  public:
    explicit Text(uint32_t bytes) : room(bytes) {}

    void tensor(const Tensor &t) {
        item();
        if (!t.sizes)
            shapes.put("\"?\"");
        else
            shapes.put("[");
        for (uint64_t i = 0; t.sizes && i < t.dims; i++) {
            if (i)
                shapes.put(", ");
            shapes.put(t.sizes[i]);
        }
        if (t.sizes)
            shapes.put("]");
        name(t.dtype < sizeof DTYPES / sizeof *DTYPES ? DTYPES[t.dtype] : nullptr);
        keep();
    }
    void other(const char *type) {
        item();
        shapes.put("null");
        name(type);
        keep();
    }
    void open() {
        item();
        shapes.put("[");
        dtypes.put("[");
        first = inside = true;
        keep();
    }
    void close() {
        shapes.put("]");
        dtypes.put("]");
        first = inside = false;
        keep();
    }
    uint32_t write(char *into) {
        uint32_t length = 0;
        append(into, length, HEAD);
        append(into, length, shapes, kept_shapes);
        append(into, length, MIDDLE);
        append(into, length, dtypes, kept_dtypes);
        append(into, length, cut ? CUT : END);
        into[length] = 0;
        return length;
    }

  private:
    static constexpr const char *HEAD = "{\"shapes\": [", *MIDDLE = "], \"dtypes\": [", *END = "]}",
                                *CUT = "], \"cut\": true}";
    static constexpr uint32_t AROUND = 64; // those, the brackets of a list that is cut, and the NUL

    void item() {
        if (!first) {
            shapes.put(", ");
            dtypes.put(", ");
        }
        first = false;
    }
    void name(const char *text) {
        dtypes.put(text ? "\"" : "null");
        if (text) {
            dtypes.put(text);
            dtypes.put("\"");
        }
    }
    void keep() {
        cut |= shapes.bad || dtypes.bad || shapes.length + dtypes.length + AROUND > room;
        if (cut)
            return;
        kept_shapes = shapes.length;
        kept_dtypes = dtypes.length;
        kept_inside = inside;
    }
    void append(char *into, uint32_t &length, const char *text) {
        const uint32_t bytes = static_cast<uint32_t>(std::strlen(text));
        std::memcpy(into + length, text, bytes);
        length += bytes;
    }
    void append(char *into, uint32_t &length, const List &list, uint32_t bytes) {
        std::memcpy(into + length, list.text, bytes);
        length += bytes;
        if (cut && kept_inside)
            into[length++] = ']';
    }

    List shapes, dtypes;
    uint32_t room, kept_shapes = 0, kept_dtypes = 0;
    bool first = true, inside = false, kept_inside = false, cut = false;
};

} // namespace

// What the agent and this file have agreed on.
LS_SHAPES_EXPORT uint32_t ls_shapes_version() { return 1; }

// A number for the shapes and dtypes of the inputs of an at::RecordFunction that begins, mixed best in its high bits;
// 0: no tensor is among them.
LS_SHAPES_EXPORT uint64_t ls_shapes_hash(const void *record_function) noexcept {
    try {
        Hash hash;
        return walk(*static_cast<const at::RecordFunction *>(record_function), hash) ? hash.value() : 0;
    } catch (...) {
        return 0;
    }
}

// The same as JSON text with a NUL behind it, in at most `bytes` (at least 256); returns its length, 0: none.
LS_SHAPES_EXPORT uint32_t ls_shapes_text(const void *record_function, char *into, uint32_t bytes) noexcept {
    try {
        Text text(bytes);
        return walk(*static_cast<const at::RecordFunction *>(record_function), text) ? text.write(into) : 0;
    } catch (...) {
        return 0;
    }
}
