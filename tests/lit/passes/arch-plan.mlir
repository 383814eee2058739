// The named pipeline, on a network of structure, with each option.
// RUN: trc-opt %s -p arch-plan | filecheck %s
// RUN: trc-opt %s -p 'arch-plan{amp=false fuse=true num-classes=10 label-smoothing=0.0}' | filecheck %s
// RUN: trc-opt %s -p 'arch-plan{amp=true label-smoothing=0.1}' | filecheck %s --check-prefix=AMP
// RUN: trc-opt %s -p 'arch-plan{fuse=false}' | filecheck %s --check-prefix=PLAIN

// CHECK: arch.model @net(%x: tensor<?x32x32x3xf32>) {
// CHECK-NEXT: arch.cbr %x {{.*}} parts ["conv1", "bn1", "relu1"] first : tensor<?x16x16x8xf32>
// CHECK-NEXT: arch.basic_block {{.*}} parts ["r.conv2",
// CHECK-NEXT: arch.basic_block {{.*}} parts ["r.conv4",
// CHECK-NEXT: arch.gap_fc
// CHECK-NEXT: arch.softmax_ce %{{.*}} {num_classes = 10} layer "softmax_ce" : tensor<?x1x1x10xf32>
// CHECK-NEXT: arch.output
// AMP: arch.model @net(%x: tensor<?x32x32x4xf32>) {
// AMP: arch.softmax_ce %{{.*}} {num_classes = 10, label_smoothing = 0.1}
// PLAIN: arch.conv %x {{.*}} layer "conv1" first
// PLAIN-NEXT: arch.bn2d
// PLAIN-NEXT: arch.relu
// PLAIN-NEXT: arch.identity %{{.*}} layer "r.identity1"
// PLAIN-NOT: parts
arch.model @net(%x: tensor<?x32x32x3xf32>) {
  %0 = arch.seq %x (%a) {
    %1 = arch.conv %a {out_channels = 8, kernel = 3, stride = 2, padding = 1}
    %2 = arch.bn %1
    %3 = arch.relu %2
    %4 = arch.repeat %3 {times = 2} layer "r" (%b) {
      %5 = arch.block %b {style = RESNET_3_3, out = 8}
      arch.yield %5
    }
    %6 = arch.gap_fc %4 {out_features = 10}
    arch.yield %6
  }
  arch.output %0
}
