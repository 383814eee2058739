// RUN: trc-opt %s -p arch-align-amp-channels | filecheck %s

// CHECK: arch.model @conv(%x: tensor<?x8x8x4xf32>)
arch.model @conv(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3}
  arch.output %0
}
// CHECK: arch.model @one(%x: tensor<?x8x8x4xf32>)
arch.model @one(%x: tensor<?x8x8x1xf32>) {
  %0 = arch.cbr %x {out_channels = 8, kernel = 3}
  arch.output %0
}
// CHECK: arch.model @five(%x: tensor<?x8x8x8xf32>)
arch.model @five(%x: tensor<?x8x8x5xf32>) {
  %0 = arch.basic_block %x {out_channels = 8, shortcut = projection}
  arch.output %0
}
// CHECK: arch.model @aligned(%x: tensor<?x8x8x12xf32>)
arch.model @aligned(%x: tensor<?x8x8x12xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3}
  arch.output %0
}
// CHECK: arch.model @fc(%x: tensor<?x8x8x3xf32>)
arch.model @fc(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.fc %x {out_features = 8}
  arch.output %0
}
// CHECK: arch.model @depthwise(%x: tensor<?x8x8x3xf32>)
arch.model @depthwise(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.conv %x {kernel = 3, depthwise}
  arch.output %0
}
// CHECK: arch.model @grouped(%x: tensor<?x8x8x3xf32>)
arch.model @grouped(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.conv %x {out_channels = 6, kernel = 3, groups = 3}
  arch.output %0
}
// CHECK: arch.model @mobile(%x: tensor<?x8x8x3xf32>)
arch.model @mobile(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.inverted_residual %x {out_channels = 6}
  arch.output %0
}
// CHECK: arch.model @wide(%x: tensor<?x8x8x4xf32>)
arch.model @wide(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.inverted_residual %x {expand_channels = 18, out_channels = 6}
  arch.output %0
}
// Another reader would see the added channels.
// CHECK: arch.model @two(%x: tensor<?x8x8x3xf32>)
arch.model @two(%x: tensor<?x8x8x3xf32>) {
  %0 = arch.conv %x {out_channels = 3, kernel = 1}
  %1 = arch.add %x, %0
  arch.output %1
}
