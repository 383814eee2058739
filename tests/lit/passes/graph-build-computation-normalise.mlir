// Where the layout table has a buffer of bytes, the transfer copies labels and bytes and normalises them.

// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=0.5,0.5,0.5 std=0.25,0.25,0.25},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' | filecheck %s
// RUN: trc-opt %s -p 'plan{batch=4 mean=0.5,0.5,0.5 std=0.25,0.25,0.25}' | filecheck %s --check-prefix=STEP
// RUN: not trc-opt %s -p 'plan{mean=0.5,grey,0.5}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORD

// CHECK: memplan.region S_TABLE at
// CHECK-NEXT: memplan.region I_A_BYTES at
// CHECK-NEXT: memplan.region I_B_BYTES at
// CHECK: graph.bucket TRANSFER_A on TRANS {
// CHECK-NEXT: graph.range h2d_copy writes(I_A_LABEL to I_A_LABEL) {buffer = "A"}
// CHECK-NEXT: graph.range h2d_copy writes(I_A_BYTES to I_A_BYTES) {buffer = "A"}
// CHECK-NEXT: graph.compute normalise_input reads(@bytes_a) writes(@data_a) scalars(@input_scale, @input_shift)
// CHECK-NEXT: }
// CHECK-NEXT: graph.bucket TRANSFER_B on TRANS {
// CHECK: graph.compute normalise_input reads(@bytes_b) writes(@data_b) scalars(@input_scale, @input_shift)
// CHECK: graph.bucket FIRST_LAYER_FWD_A on COMP_1 {
// CHECK: graph.compute flatten_fwd reads(@data_a)

// Labels and bytes may come in any order; normalising waits for the bytes.
// STEP: graph.step @transfer_a of @train columns [0, 1, 2, 3, 4, 5] buckets [TRANSFER_A] after {{\[\[\], \[\], \[1\]\]}}

// WORD: error: plan: option mean must be numbers between commas, not '0.5,grey,0.5'

arch.model @net(%x: tensor<?x2x2x3xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x12xf32>
  %1 = arch.fc %0 {out_features = 4} layer "fc1" : tensor<?x1x1x4xf32>
  %2 = arch.softmax_ce %1 {num_classes = 4} layer "softmax_ce" : tensor<?x1x1x4xf32>
  arch.output %2
}
