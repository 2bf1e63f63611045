"""The parts of the call wrapper for torch tensors and for shapes that depend on the call, in LLVM IR
as `wrapper_code.py` says."""

from __future__ import annotations

__all__ = ["ABSENT", "GENERAL"]

GENERAL = """
; Whether a torch tensor fits a parameter, its extents aside; `dl` takes what DLPack says of it.
define internal i1 @tensor(ptr %table, ptr %record, ptr %object, ptr %dl) noinline {
entry:
  %self = alloca ptr
  %exchange = field ptr %table, $H_exchange
  %failed = call i32 %exchange(ptr %object, ptr %dl)
  %could = icmp eq i32 %failed, 0
  br i1 %could, label %look, label %error
look:
  %device = at i32 %dl, $T_device
  %nd = at i32 %dl, $T_nd
  %type = at i32 %dl, $T_type
  %type64 = zext i32 %type to i64
  %nd64 = zext i32 %nd to i64
  %want.type = field i64 %record, $R_dltype
  %rank = field i64 %record, $R_rank
  %mask = field i64 %record, $R_align
  %data0 = at i64 %dl, $T_data
  %offset = at i64 %dl, $T_offset
  %data = add i64 %data0, %offset
  store i64 %data, ptr %dl
  %off = and i64 %data, %mask
  %on.cpu = icmp eq i32 %device, 1
  %same.type = icmp eq i64 %type64, %want.type
  %same.rank = icmp eq i64 %nd64, %rank
  %aligned = icmp eq i64 %off, 0
  %there = icmp ne i64 %data0, 0
  %ok0 = and i1 %on.cpu, %same.type
  %ok1 = and i1 %same.rank, %aligned
  %ok2 = and i1 %ok0, %there
  %ok = and i1 %ok1, %ok2
  br i1 %ok, label %steps, label %no
steps:
  %shape = at ptr %dl, $T_dims
  %strides = at ptr %dl, $T_strides
  %no.strides = icmp eq ptr %strides, null
  br i1 %no.strides, label %no, label %dim
dim:
  %left = phi i64 [ %rank, %steps ], [ %d, %dim.next ]
  %step = phi i64 [ 1, %steps ], [ %step1, %dim.next ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %dim.one, label %grad
dim.one:
  %d = sub i64 %left, 1
  %extent = field i64 %shape, %d
  %stride = field i64 %strides, %d
  %dense = icmp eq i64 %stride, %step
  %single = icmp eq i64 %extent, 1
  %fine = or i1 %dense, %single
  br i1 %fine, label %dim.next, label %no
dim.next:
  %step1 = mul i64 %step, %extent
  br label %dim
grad:                                             ; DLPack does not tell of these
  %grad.name = field ptr %table, $H_requires_grad
  %grad.object = call ptr @PyObject_GetAttr(ptr %object, ptr %grad.name)
  %grad.none = icmp eq ptr %grad.object, null
  br i1 %grad.none, label %error, label %grad.got
grad.got:
  call void @Py_DecRef(ptr %grad.object)
  %plain = icmp eq ptr %grad.object, @_Py_FalseStruct
  br i1 %plain, label %negative, label %no
negative:
  store ptr %object, ptr %self
  %neg.name = field ptr %table, $H_is_neg
  %neg.object = call ptr @PyObject_VectorcallMethod(ptr %neg.name, ptr %self, i64 1, ptr null)
  %neg.none = icmp eq ptr %neg.object, null
  br i1 %neg.none, label %error, label %neg.got
neg.got:
  call void @Py_DecRef(ptr %neg.object)
  %positive = icmp eq ptr %neg.object, @_Py_FalseStruct
  ret i1 %positive
error:
  call void @PyErr_Clear()
  br label %no
no:
  ret i1 false
}

; An output of a shape that depends on the call, made of its shape and then `descr`, if there is one; null, with or
; without an exception: there is none.
define internal ptr @shaped(ptr %maker, ptr %record, ptr %scalars, i64 %nscalars, ptr %sizes,
                             ptr %descr) noinline {
entry:
  %rank = field i64 %record, $R_rank
  %extents = getelementptr i64, ptr %record, i64 $RECORD_WORDS
  %shape = call ptr @PyTuple_New(i64 %rank)
  %no.shape = icmp eq ptr %shape, null
  br i1 %no.shape, label %none, label %dim
dim:
  %d = phi i64 [ 0, %entry ], [ %d1, %set ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %one, label %make
one:
  %want = field i64 %extents, %d
  %constant = icmp sge i64 %want, 0
  br i1 %constant, label %known, label %symbol
symbol:
  %number = xor i64 %want, -1
  %derived = icmp sge i64 %number, %nscalars
  br i1 %derived, label %far, label %near
near:
  %scalar = field i64 %scalars, %number
  br label %known
far:
  %number1 = sub i64 %number, %nscalars
  %number2 = add i64 %number1, 4
  %size = field i64 %sizes, %number2
  br label %known
known:
  %extent = phi i64 [ %want, %one ], [ %scalar, %near ], [ %size, %far ]
  %negative = icmp slt i64 %extent, 0
  br i1 %negative, label %drop, label %object
object:
  %int = call ptr @PyLong_FromLongLong(i64 %extent)
  %no.int = icmp eq ptr %int, null
  br i1 %no.int, label %drop, label %set
set:
  %s = call i32 @PyTuple_SetItem(ptr %shape, i64 %d, ptr %int)
  %d1 = add i64 %d, 1
  br label %dim
make:
  %made = call ptr (ptr, ...)
      @PyObject_CallFunctionObjArgs(ptr %maker, ptr %shape, ptr %descr, ptr null)
  br label %drop
drop:
  %result = phi ptr [ null, %known ], [ null, %object ], [ %made, %make ]
  call void @Py_DecRef(ptr %shape)
  ret ptr %result
none:
  ret ptr null
}
"""

# In a module without them, whose calls to them fold away.
ABSENT = """
declare i1 @tensor(ptr, ptr, ptr, ptr)
declare ptr @shaped(ptr, ptr, ptr, i64, ptr, ptr)
"""
