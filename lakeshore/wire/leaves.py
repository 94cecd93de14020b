"""The value types that travel besides msgpack's own: numpy arrays and scalars, torch tensors, PIL images.

Bodies (api/function-protocol, "Value codec"):
    1  numpy.ndarray, numpy scalars   msgpack([dtype_str, shape_list, raw_bytes]); shape nil marks a scalar
    2  torch.Tensor                   the same, detached and on the CPU; dtype_str "bfloat16" where numpy has no name
    3  PIL.Image                      msgpack([format_str, encoded_bytes]); pixels, mode and palette, always lossless

Nothing is ever pickled: dtypes whose bytes do not say what they are (object, structured, void, numpy's StringDType) are
refused when packed. The libraries are imported by the function that needs them and by nothing else.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import msgpack

from lakeshore.wire.errors import WireError

if TYPE_CHECKING:
    from types import ModuleType

# A dtype string reaches np.dtype() only in this form: "i4,O" and its like build structured types from a peer's text.
_DTYPE: Final = re.compile(r"[<>|=][biufcSUmM][0-9]{1,9}(\[[0-9]{0,9}[a-zA-Zμ]{1,7}\])?")
_MAX_DIMS: Final = 64

# PNG keeps these modes exactly. Everything else goes as TIFF, which also has the 32-bit and print modes.
_PNG_MODES: Final = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})
_TIFF_MODES: Final = frozenset({"I", "F", "CMYK", "YCbCr", "LAB", "RGBX"})
# What a reader opens. PIL has readers that start other programs (EPS); a peer does not get to choose those.
_READABLE: Final = frozenset({"PNG", "TIFF", "JPEG", "WEBP", "BMP", "GIF", "PPM"})

_TORCH_TO_STR: Final = {
    "float16": "<f2",
    "float32": "<f4",
    "float64": "<f8",
    "bfloat16": "bfloat16",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "bool": "|b1",
    "complex64": "<c8",
    "complex128": "<c16",
}
_STR_TO_TORCH: Final = {text: name for name, text in _TORCH_TO_STR.items()}


def _parts(body: bytes, count: int) -> list[Any]:
    parts = msgpack.unpackb(body)
    if type(parts) is not list or len(parts) != count or type(parts[0]) is not str or type(parts[-1]) is not bytes:
        raise WireError(f"the body is not a list of {count} that starts with a string and ends in bytes")
    return parts


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not list or len(value) > _MAX_DIMS or any(type(n) is not int or n < 0 for n in value):
        raise WireError(f"{value!r:.80} is no array shape")
    return tuple(value)


def _need(name: str, what: str) -> ModuleType:
    """Import a library on behalf of a value that came over the wire."""
    import importlib  # the wall: only a value of that type pays for the library

    try:
        return importlib.import_module(name)
    except ImportError as exc:
        package = "pillow" if name.startswith("PIL") else name
        raise WireError(
            f"the value holds a {what}, and {package} is not installed here: pip install {package}"
        ) from exc


# ---- numpy


def encode_numpy(value: Any) -> bytes:
    """An ndarray (or memmap) or a numpy scalar of a plain dtype; any layout, byte order and shape. TypeError else."""
    import numpy as np  # the wall: see the module's docstring

    scalar = isinstance(value, np.generic)
    if not scalar and type(value) not in (np.ndarray, np.memmap):
        raise TypeError(f"wire: {type(value).__name__} would come back as a plain numpy.ndarray: pass numpy.asarray(x)")
    dtype = value.dtype
    if dtype.kind not in "biufcmMSU":
        if dtype.hasobject or dtype.kind == "O":
            fix = "pass x.tolist(), or an array of one plain dtype (objects would need pickle)"
        elif dtype.names is not None:
            fix = "pass its fields one by one, as {name: x[name]}"
        else:
            fix = "pass a plain dtype and convert on the other side: x.view(numpy.uint8) or x.astype(numpy.float32)"
        raise TypeError(f"wire: a numpy array of dtype {dtype} does not travel: {fix}")
    shape = None if scalar else list(value.shape)
    return bytes(msgpack.packb([dtype.str, shape, value.tobytes()]))


def decode_numpy(body: bytes) -> Any:
    """The array, writable and owning its memory, or the scalar."""
    text, dims, raw = _parts(body, 3)
    np = _need("numpy", "numpy array")
    if not _DTYPE.fullmatch(text):
        raise WireError(f"{text!r:.80} is no dtype that travels")
    dtype = np.dtype(text)
    shape = () if dims is None else _shape(dims)
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise WireError(f"an array {shape} of {text} takes {math.prod(shape) * dtype.itemsize} bytes, got {len(raw)}")
    if dtype.itemsize == 0:
        array = np.zeros(shape, dtype)
    else:
        array = np.frombuffer(raw, dtype).reshape(shape).copy() if raw else np.empty(shape, dtype)
    return array[()] if dims is None else array


# ---- torch


def encode_torch(value: Any) -> bytes:
    """A dense tensor or Parameter, detached and on the CPU. TypeError for sparse, quantized and exotic dtypes."""
    import torch  # the wall: see the module's docstring

    name = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or value.is_quantized or name not in _TORCH_TO_STR:
        raise TypeError(
            f"wire: a {value.layout} tensor of {value.dtype} does not travel: pass x.to_dense(), x.dequantize() or "
            f"x.to(torch.float32)"
        )
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"wire: {type(value).__name__} would come back as a plain torch.Tensor: pass x.data")
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return bytes(msgpack.packb([_TORCH_TO_STR[name], list(plain.shape), raw]))


def decode_torch(body: bytes) -> Any:
    """The tensor, on the CPU, without gradient."""
    text, dims, raw = _parts(body, 3)
    shape = _shape(dims)
    torch = _need("torch", "torch tensor")
    name = _STR_TO_TORCH.get(text)
    if name is None or not hasattr(torch, name):
        raise WireError(f"{text!r:.80} is no tensor dtype that this torch has")
    dtype = getattr(torch, name)
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise WireError(f"a tensor {shape} of {text} takes {math.prod(shape) * dtype.itemsize} bytes, got {len(raw)}")
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


# ---- PIL


def encode_image(value: Any) -> bytes:
    """The current frame of an image, without loss. TypeError for no pixels, and for modes that no such format keeps."""
    import io  # the wall: see the module's docstring

    if 0 in value.size:
        raise TypeError(f"wire: an image of {value.width}x{value.height} has no pixels to send")
    mode = value.mode
    if mode not in _PNG_MODES and mode not in _TIFF_MODES:
        raise TypeError(f'wire: an image of mode {mode} does not travel exactly: pass x.convert("RGBA")')
    kind = "PNG" if mode in _PNG_MODES else "TIFF"
    out = io.BytesIO()
    value.save(out, format=kind)
    return bytes(msgpack.packb([kind, out.getvalue()]))


def decode_image(body: bytes) -> Any:
    """The image, loaded."""
    kind, raw = _parts(body, 2)
    if kind.upper() not in _READABLE:
        raise WireError(f"{kind!r:.40} is no image format that is read from the wire ({', '.join(sorted(_READABLE))})")
    image_module = _need("PIL.Image", "PIL image")
    import io  # the wall: see the module's docstring

    image = image_module.open(io.BytesIO(raw), formats=[kind.upper()])
    image.load()
    return image
