package streamproof.storm;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.storm.security.auth.ThriftConnectionType;
import org.apache.storm.security.auth.digest.DigestSaslTransportPlugin;
import org.apache.storm.thrift.TProcessor;
import org.apache.storm.thrift.protocol.TBinaryProtocol;
import org.apache.storm.thrift.server.TServer;
import org.apache.storm.thrift.server.TThreadPoolServer;
import org.apache.storm.thrift.transport.TServerSocket;
import org.apache.storm.thrift.transport.TTransportException;

/** Storm's transport with passwords, on loopback: Storm's own listens on every interface, and has no setting for it. */
public final class Loopback extends DigestSaslTransportPlugin {
    private int port;

    @Override
    public void prepare(ThriftConnectionType type, Map<String, Object> conf) {
        super.prepare(type, conf);
        port = type.getPort(conf);
    }

    @Override
    public TServer getServer(TProcessor processor) throws IOException, TTransportException {
        TServerSocket socket = new TServerSocket(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        return new TThreadPoolServer(new TThreadPoolServer.Args(socket)
                .processor(processor)
                .minWorkerThreads(4)
                .maxWorkerThreads(64)
                .protocolFactory(new TBinaryProtocol.Factory(false, true))
                .transportFactory(getServerTransportFactory(type.isImpersonationAllowed())));
    }

    @Override
    public int getPort() {
        return port;
    }
}
