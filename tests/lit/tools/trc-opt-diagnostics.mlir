// --verify-diagnostics fails when an announced error does not come and when another does.

// RUN: not trc-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s
// RUN: trc-opt %s --split-input-file --verify-diagnostics 2>/dev/null >%t.out || filecheck %s --check-prefix=OUT < %t.out

// OUT:      memplan.region W_FC_BIAS at 0 bytes 512
// OUT-NEXT: }
// OUT-NEXT: // -----
// OUT-NEXT: builtin.module {
// OUT-NEXT:   memplan.region W_FC_WEIGHT at 0 bytes 512

// CHECK-NOT: diagnostics.mlir:{{[0-9]:|1[0-9]:|2[0-4]:}}
memplan.region W_FC_BIAS at 0 bytes 512 // nothing expected, nothing comes

// -----

memplan.region W_FC_BIAS at 1 bytes 512 // expected-error {{the offset 1 is}}

// -----

memplan.region W_FC_BIAS at 1 bytes 512
// expected-error@-1 {{region W_FC_BIAS}}

// -----

// CHECK: trc-opt-diagnostics.mlir:27:1: error: expected error in line 28 did not occur: no such thing
// expected-error@+1 {{no such thing}}
memplan.region W_FC_WEIGHT at 0 bytes 512

// -----

// CHECK: trc-opt-diagnostics.mlir:33:1: error: unexpected error: memplan.region: region W_FC_BIAS: the offset 1 is no multiple
memplan.region W_FC_BIAS at 1 bytes 512

// -----

// CHECK: trc-opt-diagnostics.mlir:40:1: error: unexpected error: {{.*}}the offset 1 is no multiple
// CHECK: trc-opt-diagnostics.mlir:39:1: error: expected error in line 40 did not occur: another text
// expected-error@+1 {{another text}}
memplan.region W_FC_BIAS at 1 bytes 512
